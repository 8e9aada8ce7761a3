/* Serves the files of a directory over HTTP/1.1 with libsamum: one thread, any number of clients, no wait for the disk.
 *
 *     cargo build --release --package libsamum
 *     cc -I crates/libsamum/include crates/libsamum/examples/serve.c -L target/release -lsamum -o serve
 *     ln -s libsamum.so target/release/libsamum.so.0
 *     LD_LIBRARY_PATH=target/release ./serve . 8080
 *
 * SIGTERM and SIGINT end it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "samum.h"

/* Tokens; that of any other call is its client. */
#define ACCEPT 0
#define END 1

struct client {
    uint64_t socket, file;
    char input[4096], head[128];
    size_t used; /* bytes of input */
};

static samum_queue *queue;
static uint64_t root;

static void check(int error, const char *what) {
    if (error == 0) return;
    fprintf(stderr, "%s: %s\n", what, strerror(error));
    exit(1);
}

static void drop(struct client *client) {
    samum_close(queue, client->socket);
    if (client->file) samum_close(queue, client->file);
    free(client);
}

/* Sends a head, and the client's file behind it. */
static int respond(struct client *client, const char *status, uint64_t size) {
    const char *form = "HTTP/1.1 %s\r\nContent-Length: %llu\r\n\r\n";
    int length = snprintf(client->head, sizeof client->head, form, status, (unsigned long long)size);
    struct samum_piece pieces[2] = {{client->head, 0, 0, (uint64_t)length}, {NULL, client->file, 0, size}};
    return samum_send(queue, client->socket, pieces, client->file ? 2 : 1, 0, (uintptr_t)client, NULL);
}

/* Takes the next request out of the input, or receives more of it. A client has one call in flight at any time. */
static int next(struct client *client) {
    char *end = memmem(client->input, client->used, "\r\n\r\n", 4);
    if (end == NULL) {
        size_t room = sizeof client->input - client->used;
        return samum_receive(queue, client->socket, client->input + client->used, room, (uintptr_t)client, NULL);
    }
    char path[1024];
    *end = 0;
    int has_path = sscanf(client->input, "GET /%1023[^ ?] HTTP/1.1", path) == 1;
    client->used -= (size_t)(end + 4 - client->input);
    memmove(client->input, end + 4, client->used);
    return has_path ? samum_open(queue, root, path, 0, (uintptr_t)client, NULL) : respond(client, "404 Not Found", 0);
}

static void handle(const struct samum_completion *done) {
    struct client *client = (struct client *)(uintptr_t)done->token;
    int error = done->error;
    if (done->event == SAMUM_ACCEPTED) {
        check(error, "accept");
        client = calloc(1, sizeof *client);
        if (client == NULL) {
            samum_close(queue, done->name);
            return;
        }
        client->socket = done->name;
        error = next(client);
    } else if (done->event == SAMUM_OPENED) {
        client->file = done->name; /* 0 with an error */
        error = error ? respond(client, "404 Not Found", 0) : respond(client, "200 OK", done->bytes);
    } else if (done->event == SAMUM_SENT && error == 0) {
        if (client->file) samum_close(queue, client->file);
        client->file = 0;
        error = next(client);
    } else if (done->event == SAMUM_RECEIVED && done->bytes > 0) {
        client->used += (size_t)done->bytes;
        error = next(client);
    } else {
        error = -1; /* the peer has ended, or gone */
    }
    if (error) drop(client);
}

int main(int argc, char **argv) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    address.sin_port = htons((uint16_t)(argc > 2 ? atoi(argv[2]) : 8080));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) {
        perror("listen");
        return 1;
    }
    getsockname(listener, (struct sockaddr *)&address, &size);

    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigaddset(&end, SIGINT);
    sigprocmask(SIG_BLOCK, &end, NULL);

    uint64_t name;
    check(samum_queue_new(&queue), "samum_queue_new");
    check(samum_directory(queue, open(argc > 1 ? argv[1] : ".", O_PATH | O_CLOEXEC), &root), "the directory");
    check(samum_listener(queue, listener, &name), "samum_listener");
    check(samum_accept(queue, name, ACCEPT, NULL), "samum_accept");
    check(samum_signal(queue, SIGTERM, END, NULL), "samum_signal");
    check(samum_signal(queue, SIGINT, END, NULL), "samum_signal");
    printf("http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct samum_completion completions[64];
        size_t count;
        check(samum_wait(queue, -1, completions, 64, &count), "samum_wait");
        for (size_t i = 0; i < count; i++) {
            if (completions[i].event == SAMUM_SIGNAL) {
                samum_queue_free(queue); /* and with it all calls and sockets */
                return 0;
            }
            handle(&completions[i]);
        }
    }
}
