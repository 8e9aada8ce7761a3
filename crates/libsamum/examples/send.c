/* Sends a file to a server on this machine, one call after the other: for programs without a loop of events. A disk that does not
 * answer ends in an error (ETIMEDOUT), not in a program that hangs. README.md says how to build. `./send DIRECTORY FILE PORT` */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <error.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "samum.h"

static samum_queue *queue;

static void check(int errnum, const char *what) {
    if (errnum) error(1, errnum, "%s", what);
}

/* Waits until a call that was begun without an error has completed without one. */
static struct samum_completion end(int errnum, uint64_t call, const char *what) {
    struct samum_completion done;
    check(errnum, what);
    check(samum_wait_for(queue, call, -1, &done), what);
    check(done.error, what);
    return done;
}

int main(int argc, char **argv) {
    if (argc != 4) error(2, 0, "usage: %s DIRECTORY FILE PORT", argv[0]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)atoi(argv[3]));
    uint64_t directory, call;
    check(samum_queue_new(&queue), "samum_queue_new");
    check(samum_directory(queue, open(argv[1], O_PATH | O_CLOEXEC), &directory), argv[1]);
    int errnum = samum_open(queue, directory, argv[2], 0, 0, &call);
    struct samum_completion file = end(errnum, call, argv[2]);
    errnum = samum_connect(queue, (struct sockaddr *)&address, sizeof address, 0, &call);
    uint64_t socket = end(errnum, call, "connect").name;
    struct samum_piece piece = {.file = file.name, .length = file.bytes};
    errnum = samum_send(queue, socket, &piece, 1, 0, 0, &call);
    printf("%llu bytes\n", (unsigned long long)end(errnum, call, "send").bytes);
    return samum_queue_free(queue);
}
