/* What samum.h says of a disk that does not answer. Its argument is a directory where reads of `data` and opens of `late` do
 * not end. Says `done` and exits with 0 if all of it is so. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct samum_completion next(uint32_t event, int error) {
    struct samum_completion one = completion();
    EXPECT(event, one.event);
    EXPECT(error, one.error);
    return one;
}

int main(int argc, char **argv) {
    EXPECT(2, argc);
    uint64_t dir, socket, call;
    int pair[2];
    struct samum_completion done;
    size_t count;
    EXPECT(0, samum_queue_new(&queue));
    EXPECT(0, samum_directory(queue, open(argv[1], O_PATH | O_CLOEXEC), &dir));
    EXPECT(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    EXPECT(0, samum_socket(queue, pair[0], &socket));
    EXPECT(0, samum_open(queue, dir, "data", 0, 1, NULL));
    done = next(SAMUM_OPENED, 0);
    struct samum_piece piece = {.file = done.name, .length = done.bytes};

    /* The time is over. */
    EXPECT(EFAULT, samum_queue_set_patience(NULL, 300));
    EXPECT(0, samum_queue_set_patience(queue, 300));
    double begun = now();
    EXPECT(0, samum_send(queue, socket, &piece, 1, 0, 2, NULL));
    EXPECT(0, next(SAMUM_SENT, ETIMEDOUT).bytes);
    EXPECT(0, samum_open(queue, dir, "late", 0, 3, NULL));
    next(SAMUM_OPENED, ETIMEDOUT);
    EXPECT(1, now() - begun > 0.59);

    /* Without a limit they wait, and are cancelled at once. */
    EXPECT(0, samum_queue_set_patience(queue, 0));
    uint64_t calls[2];
    EXPECT(0, samum_send(queue, socket, &piece, 1, 0, 4, &calls[0]));
    EXPECT(0, samum_open(queue, dir, "late", 0, 5, &calls[1]));
    EXPECT(0, samum_wait(queue, 1000, &done, 1, &count));
    EXPECT(0, count);
    for (int i = 0; i < 2; i++) {
        EXPECT(0, samum_cancel(queue, calls[i]));
        EXPECT(0, samum_wait(queue, 0, &done, 1, &count));
        EXPECT(1, count);
        EXPECT(1, done.call == calls[i] && done.error == ECANCELED);
    }

    /* The queue goes with calls in flight. */
    EXPECT(0, samum_send(queue, socket, &piece, 1, 0, 6, &call));
    EXPECT(0, samum_open(queue, dir, "late", 0, 7, &call));
    EXPECT(0, samum_wait(queue, 100, &done, 1, &count));
    EXPECT(0, count);
    begun = now();
    EXPECT(0, samum_queue_free(queue));
    EXPECT(1, now() - begun < 5);
    char byte;
    EXPECT(0, read(pair[1], &byte, 1)); /* the socket is closed */
    EXPECT(0, puts("done") == EOF);
    return fflush(stdout);
}
