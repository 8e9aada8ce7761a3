/* One of each kind of call, without threads or files on a disk, for tools that run programs in their own way. */

#define _GNU_SOURCE
#include <samum.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static samum_queue *queue;

/* Returns whether this is the next completion, without an error. */
static int is_next(uint32_t event, uint64_t token, uint64_t bytes) {
    struct samum_completion done;
    size_t count = 0;
    return samum_wait(queue, 10000, &done, 1, &count) == 0 && count == 1 && done.event == event && done.token == token &&
           done.bytes == bytes && done.error == 0;
}

int main(void) {
    if (samum_queue_new(&queue) != 0)
        return 2;
    if (samum_timer(queue, 1, 7, NULL) != 0 || !is_next(SAMUM_TIMER, 7, 0))
        return 3;
    int pair[2];
    uint64_t socket, file;
    samum_waker *waker;
    char room[16] = "";
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || write(pair[1], "hello", 5) != 5)
        return 4;
    if (samum_socket(queue, pair[0], &socket) != 0 || samum_file(queue, memfd_create("file", 0), 0, &file) != 0)
        return 5;
    if (samum_receive_file(queue, socket, file, 2, 5, 1, NULL) != 0 || !is_next(SAMUM_STORED, 1, 5))
        return 6;
    if (samum_read(queue, file, 1, room, sizeof room, 2, NULL) != 0 || !is_next(SAMUM_READ, 2, 6))
        return 7;
    if (memcmp(room, "\0hello", 6) != 0)
        return 8;
    struct samum_piece piece = {.file = file, .length = 7};
    if (samum_send(queue, socket, &piece, 1, 0, 3, NULL) != 0 || !is_next(SAMUM_SENT, 3, 7))
        return 9;
    if (samum_ready(queue, pair[1], SAMUM_READABLE, 4, NULL) != 0 || !is_next(SAMUM_READY, 4, 0))
        return 10;
    if (samum_waker_new(queue, &waker) != 0 || samum_wake(waker) != 0 || !is_next(SAMUM_WOKEN, 0, 0))
        return 11;
    int freed = samum_queue_free(queue);
    samum_waker_free(waker);
    return freed;
}
