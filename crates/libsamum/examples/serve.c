/* Serves the files of a directory over HTTP/1.1: one thread, any number of clients, no wait for the disk. SIGTERM ends it.
 * README.md says how to build it. `./serve DIRECTORY PORT` */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "samum.h"

/* Has one call in flight at any time, whose token is its address. Calls for the listener have the token 0. */
struct client {
    uint64_t socket;
    size_t used; /* bytes of input */
    char input[4096], head[128];
};

static samum_queue *queue;
static uint64_t root, listener;

static void check(int errnum, const char *what) {
    if (errnum) error(1, errnum, "%s", what);
}

/* Sends a head, and a file behind it unless that is 0. */
static int respond(struct client *client, const char *status, uint64_t file, unsigned long long size) {
    int length = snprintf(client->head, sizeof client->head, "HTTP/1.1 %s\r\nContent-Length: %llu\r\n\r\n", status, size);
    struct samum_piece pieces[2] = {{.memory = client->head, .length = (uint64_t)length}, {.file = file, .length = size}};
    int errnum = samum_send(queue, client->socket, pieces, 2, 0, (uintptr_t)client, NULL);
    if (file) samum_close(queue, file); /* the send keeps it open */
    return errnum;
}

/* Takes the next request out of the input, or receives more of it. */
static int next(struct client *client) {
    char path[1024], *input = client->input, *end = memmem(input, client->used, "\r\n\r\n", 4);
    size_t room = sizeof client->input - client->used;
    if (end == NULL) return samum_receive(queue, client->socket, input + client->used, room, (uintptr_t)client, NULL);
    *end = 0;
    int has_path = sscanf(input, "GET /%1023[^ ?]", path) == 1;
    client->used -= (size_t)(end + 4 - input);
    memmove(input, end + 4, client->used);
    return has_path ? samum_open(queue, root, path, 0, (uintptr_t)client, NULL) : respond(client, "404 Not Found", 0, 0);
}

static struct client *begin(const struct samum_completion *done) {
    if (done->event == SAMUM_TIMER) check(samum_accept(queue, listener, 0, NULL), "samum_accept");
    else if (done->error) check(samum_timer(queue, 100, 0, NULL), "samum_timer"); /* no free descriptor: a pause of 0.1 s */
    struct client *client = done->name ? calloc(1, sizeof *client) : NULL;
    if (client) client->socket = done->name;
    else if (done->name) samum_close(queue, done->name);
    return client;
}

/* Goes on after a completion; anything but 0 ends the client. */
static int proceed(struct client *client, const struct samum_completion *done) {
    switch (done->event) {
    case SAMUM_RECEIVED:
        client->used += (size_t)done->bytes;
        return done->bytes ? next(client) : -1; /* no bytes: the end, or an error */
    case SAMUM_OPENED: /* another error: there is no such file, or the path leads out of the directory */
        if (done->error == EMFILE || done->error == ENFILE) return respond(client, "503 Service Unavailable", 0, 0);
        return respond(client, done->error ? "404 Not Found" : "200 OK", done->name, done->bytes);
    default: /* accepted, or sent */
        return done->error ? done->error : next(client);
    }
}

int main(int argc, char **argv) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    address.sin_port = htons((uint16_t)(argc > 2 ? atoi(argv[2]) : 8080));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 4096)) check(errno, "listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    sigset_t end;
    if (sigemptyset(&end) || sigaddset(&end, SIGTERM)) check(errno, "SIGTERM");
    sigprocmask(SIG_BLOCK, &end, NULL);
    check(samum_queue_new(&queue), "samum_queue_new");
    check(samum_directory(queue, open(argc > 1 ? argv[1] : ".", O_PATH | O_CLOEXEC), &root), "the directory");
    check(samum_listener(queue, fd, &listener), "samum_listener");
    check(samum_accept(queue, listener, 0, NULL), "samum_accept");
    check(samum_signal(queue, SIGTERM, 0, NULL), "samum_signal");
    dprintf(STDOUT_FILENO, "http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    struct samum_completion done;
    size_t count; /* 1: there is no limit of time */
    while (samum_wait(queue, -1, &done, 1, &count) == 0 && done.event != SAMUM_SIGNAL) {
        struct client *client = done.token == 0 ? begin(&done) : (struct client *)(uintptr_t)done.token;
        if (client == NULL || proceed(client, &done) == 0) continue;
        samum_close(queue, client->socket);
        free(client);
    }
    return samum_queue_free(queue); /* and with it all calls, sockets and files */
}
