/* Receives a file from one peer, and gives it its name once it is complete: an upload that ends early, or that is ended by a line
 * on the standard input, leaves nothing behind. README.md says how to build. `./receive DIRECTORY FILE` prints its port. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "samum.h"

enum { ACCEPT, STORE, INPUT };

static void check(int errnum, const char *what) {
    if (errnum) error(1, errnum, "%s", what);
}

static int listen_anywhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        error(1, errno, "cannot listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 3) error(2, 0, "usage: %s DIRECTORY FILE", argv[0]);
    samum_queue *queue;
    uint64_t file, listener, accept;
    /* A file without a name. The library closes `fd`; `own` is for the name. */
    int fd = open(argv[1], O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644), own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) error(1, errno, "%s", argv[1]);
    check(samum_queue_new(&queue), "samum_queue_new");
    check(samum_file(queue, fd, 0, &file), argv[1]);
    check(samum_listener(queue, listen_anywhere(), &listener), "samum_listener");
    check(samum_accept(queue, listener, ACCEPT, &accept), "samum_accept");
    check(samum_ready(queue, STDIN_FILENO, SAMUM_READABLE, INPUT, NULL), "standard input");
    for (;;) {
        struct samum_completion done;
        size_t count;
        check(samum_wait(queue, -1, &done, 1, &count), "samum_wait");
        if (done.token == INPUT) break;
        if (done.error == ECANCELED) continue;
        check(done.error, "receive");
        if (done.token == ACCEPT) {
            check(samum_cancel(queue, accept), "samum_cancel");
            check(samum_receive_file(queue, done.name, file, 0, (uint64_t)1 << 40, STORE, NULL), "samum_receive_file");
        } else {
            char path[32];
            snprintf(path, sizeof path, "/proc/self/fd/%d", own);
            int dir = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (fsync(own) || linkat(AT_FDCWD, path, dir, argv[2], AT_SYMLINK_FOLLOW)) error(1, errno, "%s", argv[2]);
            printf("%llu bytes\n", (unsigned long long)done.bytes);
            break;
        }
    }
    return samum_queue_free(queue);
}
