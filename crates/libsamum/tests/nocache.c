/* What samum.h says of SAMUM_NOCACHE and samum_queue_free. Its arguments are a file that is not in memory, and how the program
 * sends it. Says how many bytes of the file are in the page cache after samum_queue_free. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "expect.h"

static size_t limit; /* the peer leaves after so many bytes */

static void *peer(void *argument) {
    static char bytes[1 << 16];
    int fd = *(int *)argument;
    size_t all = 0;
    for (ssize_t count; all < limit && (count = read(fd, bytes, sizeof bytes)) > 0;) all += (size_t)count;
    EXPECT(0, close(fd));
    return NULL;
}

static struct samum_completion next(uint32_t event) {
    struct samum_completion one = completion();
    EXPECT(event, one.event);
    return one;
}

static size_t resident(const char *path) {
    int fd = open(path, O_RDONLY);
    off_t size = lseek(fd, 0, SEEK_END);
    size_t pages = ((size_t)size + 4095) / 4096, count = 0;
    unsigned char *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0), *vec = malloc(pages);
    EXPECT(0, mincore(map, (size_t)size, vec));
    for (size_t i = 0; i < pages; i++) count += vec[i] & 1;
    return count * 4096;
}

int main(int argc, char **argv) {
    EXPECT(3, argc);
    const char *way = argv[2];
    char *copies[] = {strdup(argv[1]), strdup(argv[1])};
    int pair[2], leaves = strcmp(way, "leaves") == 0, cancels = strcmp(way, "cancel") == 0;
    uint64_t dir, socket, call;
    pthread_t thread;
    limit = leaves ? 10000000 : SIZE_MAX;
    EXPECT(0, samum_queue_new(&queue));
    EXPECT(0, samum_directory(queue, open(dirname(copies[0]), O_PATH | O_CLOEXEC), &dir));
    EXPECT(0, samum_open(queue, dir, basename(copies[1]), SAMUM_NOCACHE, 1, NULL));
    struct samum_completion file = next(SAMUM_OPENED);
    EXPECT(0, file.error);
    EXPECT(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    if (strcmp(way, "blocking") != 0) EXPECT(0, fcntl(pair[0], F_SETFL, O_NONBLOCK));
    EXPECT(0, samum_socket(queue, pair[0], &socket));
    EXPECT(0, pthread_create(&thread, NULL, peer, &pair[1]));
    struct samum_piece piece = {.file = file.name, .length = file.bytes};
    EXPECT(0, samum_send(queue, socket, &piece, 1, 0, 2, &call));
    if (strcmp(way, "free") == 0) {
        /* The queue goes with the send in flight. */
        struct samum_completion one;
        size_t count;
        EXPECT(0, samum_wait(queue, 1, &one, 1, &count));
        EXPECT(0, samum_queue_free(queue));
        EXPECT(0, pthread_join(thread, NULL));
        queue = NULL;
    } else if (cancels) {
        struct samum_completion one;
        size_t count;
        for (uint64_t bytes = 0; bytes < 5000000;) {
            EXPECT(0, samum_wait(queue, 1, &one, 1, &count));
            EXPECT(0, count);
            EXPECT(0, samum_acknowledged(queue, socket, &bytes));
        }
        EXPECT(0, samum_cancel(queue, call));
        EXPECT(ECANCELED, next(SAMUM_SENT).error);
        EXPECT(0, samum_shutdown(queue, socket));
        EXPECT(0, pthread_join(thread, NULL));
    } else {
        struct samum_completion sent = next(SAMUM_SENT);
        EXPECT(leaves ? EPIPE : 0, sent.error);
        if (!leaves) EXPECT(0, samum_shutdown(queue, socket));
        EXPECT(0, pthread_join(thread, NULL)); /* it has read all, so nothing refers to the pages */
    }
    EXPECT(0, samum_queue_free(queue));
    EXPECT(1, printf("%zu\n", resident(argv[1])) > 0);
    return 0;
}
