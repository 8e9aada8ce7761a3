/* What samum.h says of samum_file, samum_read, samum_receive_file, samum_ready and wakers. Its argument is a directory on a disk,
 * with a file `cold` of 3,000,000 bytes, each the number of its place modulo 251. Exits with 0 if all of it is so. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"

#define COLD 3000000
#define LARGE (8 << 20)

static samum_waker *waker;
static unsigned char bytes[LARGE], back[LARGE];
static int pair[2];

static struct samum_completion next(uint32_t event, uint64_t token, int error) {
    struct samum_completion one = completion();
    EXPECT(event, one.event);
    EXPECT(token, one.token);
    EXPECT(error, one.error);
    return one;
}

static void quiet(void) {
    struct samum_completion one;
    size_t count;
    EXPECT(0, samum_wait(queue, 50, &one, 1, &count));
    EXPECT(0, count);
}

/* A socket of the queue, whose peer is pair[1]. */
static uint64_t connection(void) {
    uint64_t socket;
    EXPECT(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    EXPECT(0, samum_socket(queue, pair[0], &socket));
    return socket;
}

static int is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

/* Writes LARGE bytes to the peer's end, and leaves. */
static void *writer(void *unused) {
    for (size_t at = 0; at < LARGE;) {
        ssize_t count = write(pair[1], bytes + at, LARGE - at);
        if (count < 0) break;
        at += (size_t)count;
    }
    EXPECT(0, close(pair[1]));
    return unused;
}

static void handed_over(const char *dir) {
    uint64_t name = 7, socket = connection();
    struct samum_stat stat;
    int fds[2], memory = memfd_create("memory", 0), null = open("/dev/null", O_RDONLY), where = open(dir, O_RDONLY);
    EXPECT(5, write(memory, "hello", 5));
    EXPECT(EFAULT, samum_file(NULL, memory, 9, &name));
    EXPECT(EBADF, samum_file(queue, -1, 0, &name));
    EXPECT(EBADF, samum_file(queue, 1000, 0, &name));
    EXPECT(EINVAL, samum_file(queue, memory, 4, &name));
    EXPECT(EINVAL, samum_file(queue, memory, -1, &name));
    EXPECT(EINVAL, samum_file(queue, null, 0, &name));
    EXPECT(EISDIR, samum_file(queue, where, 0, &name));
    EXPECT(0, pipe(fds));
    EXPECT(EINVAL, samum_file(queue, fds[0], 0, &name));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int only_path = open(path, O_PATH), append = open(path, O_RDWR | O_APPEND), writes = open(path, O_WRONLY);
    EXPECT(EBADF, samum_file(queue, only_path, 0, &name));
    EXPECT(EINVAL, samum_file(queue, append, 0, &name));
    EXPECT(7, name);
    EXPECT(1, is_open(null) && is_open(where) && is_open(fds[0]) && is_open(only_path) && is_open(append));
    EXPECT(0, close(null) || close(where) || close(fds[0]) || close(fds[1]) || close(only_path) || close(append));

    /* It is sent and read from the start, wherever its position is. */
    EXPECT(0, samum_file(queue, memory, SAMUM_NOCACHE, &name));
    EXPECT(0, samum_stat(queue, name, &stat));
    EXPECT(5, stat.size);
    struct samum_piece piece = {.file = name, .length = 5};
    EXPECT(0, samum_send(queue, socket, &piece, 1, 0, 1, NULL));
    EXPECT(5, next(SAMUM_SENT, 1, 0).bytes);
    EXPECT(5, read(pair[1], back, 16));
    EXPECT(0, memcmp(back, "hello", 5));
    EXPECT(5, lseek(memory, 0, SEEK_CUR)); /* for as long as it is open */
    piece.length = 6;
    EXPECT(EINVAL, samum_send(queue, socket, &piece, 1, 0, 1, NULL));
    EXPECT(0, samum_close(queue, name));
    EXPECT(EBADF, samum_stat(queue, name, &stat));
    quiet();
    EXPECT(0, is_open(memory));

    /* A descriptor for writing is not read. */
    EXPECT(0, samum_file(queue, writes, 0, &name));
    piece = (struct samum_piece){.file = name, .length = 5};
    EXPECT(EBADF, samum_send(queue, socket, &piece, 1, 0, 1, NULL));
    EXPECT(EBADF, samum_read(queue, name, 0, back, 5, 1, NULL));
    EXPECT(0, samum_close(queue, name));
    EXPECT(0, samum_close(queue, socket));
    EXPECT(0, close(pair[1]));
}

static void reads(uint64_t dir) {
    static const int kinds[] = {SAMUM_POPULAR, SAMUM_NOCACHE, SAMUM_ALWAYS};
    uint64_t call;
    for (int i = 0; i < 3; i++) {
        EXPECT(0, samum_open(queue, dir, "cold", kinds[i], 1, NULL));
        uint64_t file = next(SAMUM_OPENED, 1, 0).name;
        memset(back, 0, sizeof back);
        EXPECT(EFAULT, samum_read(NULL, file, 0, back, 1, 1, NULL));
        EXPECT(EFAULT, samum_read(queue, file, 0, NULL, 1, 1, NULL));
        EXPECT(EINVAL, samum_read(queue, file, 0, back, 0, 1, NULL));
        EXPECT(EINVAL, samum_read(queue, file, 0, back, SIZE_MAX, 1, NULL));
        EXPECT(EBADF, samum_read(queue, dir, 0, back, 1, 1, NULL));
        EXPECT(0, samum_read(queue, file, 12345, back, sizeof back, 2, &call));
        struct samum_completion done;
        EXPECT(0, samum_wait_for(queue, call, 10000, &done));
        EXPECT(1, done.event == SAMUM_READ && done.token == 2 && done.error == 0 && done.name == 0);
        EXPECT(COLD - 12345, done.bytes);
        for (int at = 12345; at < COLD; at++) EXPECT(at % 251, back[at - 12345]);
        EXPECT(0, back[COLD - 12345]);
        EXPECT(0, samum_read(queue, file, 100, back, 10, 3, NULL));
        EXPECT(0, samum_close(queue, file)); /* it goes on */
        EXPECT(10, next(SAMUM_READ, 3, 0).bytes);
        EXPECT(100, back[0]);
        EXPECT(EBADF, samum_read(queue, file, 0, back, 1, 1, NULL));
    }
    EXPECT(0, samum_open(queue, dir, "cold", 0, 1, NULL));
    uint64_t file = next(SAMUM_OPENED, 1, 0).name;
    EXPECT(0, samum_read(queue, file, COLD, back, 1, 4, NULL));
    EXPECT(0, next(SAMUM_READ, 4, 0).bytes);
    EXPECT(0, samum_read(queue, file, UINT64_MAX, back, 1, 5, NULL));
    EXPECT(0, next(SAMUM_READ, 5, 0).bytes);
    EXPECT(0, samum_read(queue, file, 0, back, COLD, 6, &call));
    EXPECT(0, samum_cancel(queue, call));
    struct samum_completion done;
    EXPECT(0, samum_wait_for(queue, call, 0, &done));
    EXPECT(1, done.error == ECANCELED || (done.error == 0 && done.bytes == COLD));
    EXPECT(0, samum_cancel(queue, call)); /* passed over */
    EXPECT(0, samum_close(queue, file));
}

static void receives(uint64_t dir, const char *path) {
    uint64_t file, readable, socket = connection(), call;
    struct samum_stat stat;
    int tmp = open(path, O_TMPFILE | O_RDWR, 0600), own = dup(tmp);
    EXPECT(0, samum_open(queue, dir, "cold", 0, 1, NULL));
    readable = next(SAMUM_OPENED, 1, 0).name;
    EXPECT(0, samum_file(queue, tmp, 0, &file));
    EXPECT(EFAULT, samum_receive_file(NULL, socket, file, 0, 1, 1, NULL));
    EXPECT(EBADF, samum_receive_file(queue, file, file, 0, 1, 1, NULL));
    EXPECT(EBADF, samum_receive_file(queue, socket, socket, 0, 1, 1, NULL));
    EXPECT(EBADF, samum_receive_file(queue, socket, readable, 0, 1, 1, NULL));
    EXPECT(EINVAL, samum_receive_file(queue, socket, file, 0, 0, 1, NULL));
    EXPECT(EINVAL, samum_receive_file(queue, socket, file, UINT64_MAX, 1, 1, NULL));
    EXPECT(EINVAL, samum_receive_file(queue, socket, file, 1, (uint64_t)1 << 62, 1, NULL));

    /* In one row with receives into memory; the peer's end ends it. */
    pthread_t thread;
    EXPECT(0, samum_receive(queue, socket, back, 1, 1, NULL));
    EXPECT(0, samum_receive_file(queue, socket, file, 1, LARGE - 4, 2, NULL));
    EXPECT(0, samum_receive_file(queue, socket, file, LARGE - 3, 1000, 3, NULL));
    EXPECT(0, samum_receive(queue, socket, back + 1, 1, 4, NULL));
    quiet();
    EXPECT(0, pthread_create(&thread, NULL, writer, NULL));
    EXPECT(1, next(SAMUM_RECEIVED, 1, 0).bytes);
    EXPECT(LARGE - 4, next(SAMUM_STORED, 2, 0).bytes);
    EXPECT(3, next(SAMUM_STORED, 3, 0).bytes);
    EXPECT(0, next(SAMUM_RECEIVED, 4, 0).bytes);
    EXPECT(0, pthread_join(thread, NULL));
    EXPECT(LARGE, pread(own, back, LARGE, 0));
    EXPECT(0, back[0]);
    EXPECT(0, memcmp(bytes + 1, back + 1, LARGE - 1));

    /* The file is as large as that for later calls. */
    EXPECT(0, samum_stat(queue, file, &stat));
    EXPECT(LARGE, stat.size);
    memset(back, 0, LARGE);
    EXPECT(0, samum_read(queue, file, 1, back + 1, LARGE, 5, NULL));
    EXPECT(LARGE - 1, next(SAMUM_READ, 5, 0).bytes);
    EXPECT(0, memcmp(bytes + 1, back + 1, LARGE - 1));
    EXPECT(0, samum_close(queue, socket));

    /* Nothing is lost when it is cancelled before something has come. */
    socket = connection();
    EXPECT(0, samum_receive_file(queue, socket, file, 0, 10, 6, &call));
    EXPECT(0, samum_receive(queue, socket, back, 10, 7, NULL));
    EXPECT(0, samum_cancel(queue, call));
    EXPECT(0, next(SAMUM_STORED, 6, ECANCELED).bytes);
    EXPECT(3, write(pair[1], "abc", 3));
    EXPECT(3, next(SAMUM_RECEIVED, 7, 0).bytes);
    EXPECT(0, samum_receive_file(queue, socket, file, 0, 10, 8, NULL));
    EXPECT(0, samum_close(queue, socket));
    EXPECT(0, next(SAMUM_STORED, 8, EBADF).bytes);
    EXPECT(0, close(pair[1]));

    /* A file that takes nothing. */
    int full = memfd_create("sealed", MFD_ALLOW_SEALING);
    EXPECT(0, fcntl(full, F_ADD_SEALS, F_SEAL_GROW));
    EXPECT(0, samum_close(queue, file));
    EXPECT(0, samum_file(queue, full, 0, &file));
    socket = connection();
    EXPECT(0, samum_receive_file(queue, socket, file, 0, 10, 9, NULL));
    EXPECT(0, samum_receive(queue, socket, back, 10, 10, NULL));
    EXPECT(3, write(pair[1], "abc", 3));
    EXPECT(0, next(SAMUM_STORED, 9, EPERM).bytes);
    next(SAMUM_RECEIVED, 10, ECONNABORTED);
    EXPECT(0, samum_receive(queue, socket, back, 10, 11, NULL));
    next(SAMUM_RECEIVED, 11, ECONNABORTED);
    EXPECT(0, samum_close(queue, socket));
    EXPECT(0, close(pair[1]));
    EXPECT(0, samum_close(queue, readable));
    EXPECT(0, samum_close(queue, file));
    EXPECT(0, close(own));
}

static void readiness(const char *path) {
    uint64_t call;
    int fds[2], file = open(path, O_TMPFILE | O_RDWR, 0600);
    EXPECT(0, pipe(fds));
    EXPECT(EFAULT, samum_ready(NULL, fds[0], SAMUM_READABLE, 1, NULL));
    EXPECT(EBADF, samum_ready(queue, -1, SAMUM_READABLE, 1, NULL));
    EXPECT(EBADF, samum_ready(queue, 1000, SAMUM_READABLE, 1, NULL));
    EXPECT(EINVAL, samum_ready(queue, fds[0], 0, 1, NULL));
    EXPECT(EINVAL, samum_ready(queue, fds[0], SAMUM_READABLE | SAMUM_WRITABLE, 1, NULL));
    EXPECT(EPERM, samum_ready(queue, file, SAMUM_READABLE, 1, NULL));
    EXPECT(0, close(file));
    EXPECT(0, samum_ready(queue, fds[1], SAMUM_WRITABLE, 2, &call));
    EXPECT(1, next(SAMUM_READY, 2, 0).call == call);
    EXPECT(0, samum_ready(queue, fds[0], SAMUM_READABLE, 3, NULL));
    EXPECT(0, samum_ready(queue, fds[0], SAMUM_READABLE, 4, &call));
    quiet();
    EXPECT(0, samum_cancel(queue, call));
    next(SAMUM_READY, 4, ECANCELED);
    EXPECT(1, write(fds[1], "x", 1));
    next(SAMUM_READY, 3, 0);
    EXPECT(0, samum_ready(queue, fds[0], SAMUM_READABLE, 5, NULL));
    next(SAMUM_READY, 5, 0); /* it is still there */
    EXPECT(1, read(fds[0], back, 1));
    EXPECT(0, samum_ready(queue, fds[0], SAMUM_READABLE, 6, NULL));
    EXPECT(0, close(fds[0])); /* the library has a duplicate */
    quiet();
    EXPECT(0, close(fds[1]));
    next(SAMUM_READY, 6, 0); /* the other end has gone */
    int datagrams[2];
    EXPECT(0, socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
    EXPECT(0, samum_ready(queue, datagrams[0], SAMUM_READABLE, 7, NULL));
    EXPECT(1, send(datagrams[1], "x", 1, 0));
    next(SAMUM_READY, 7, 0);
    EXPECT(0, close(datagrams[0]) || close(datagrams[1]));
}

static void *wake(void *unused) {
    for (int i = 0; i < 1000; i++) EXPECT(0, samum_wake(waker));
    return unused;
}

static void wake_in_handler(int signal) {
    (void)signal;
    samum_wake(waker);
}

static void wakers(void) {
    samum_waker *other;
    pthread_t threads[2];
    struct samum_completion done;
    size_t count;
    uint64_t timer;
    EXPECT(EFAULT, samum_waker_new(queue, NULL));
    EXPECT(EFAULT, samum_waker_new(NULL, &waker));
    EXPECT(EFAULT, samum_wake(NULL));
    EXPECT(0, samum_waker_free(NULL));
    EXPECT(0, samum_waker_new(queue, &waker));
    EXPECT(0, samum_waker_new(queue, &other));
    quiet();
    EXPECT(0, samum_wake(other));
    EXPECT(0, next(SAMUM_WOKEN, 0, 0).call);
    quiet();
    EXPECT(0, samum_waker_free(other));
    for (int i = 0; i < 2; i++) EXPECT(0, pthread_create(&threads[i], NULL, wake, NULL));
    next(SAMUM_WOKEN, 0, 0);
    for (int i = 0; i < 2; i++) EXPECT(0, pthread_join(threads[i], NULL));
    /* While one call is waited for, all are one. */
    EXPECT(0, samum_timer(queue, 100, 1, &timer));
    EXPECT(0, pthread_create(&threads[0], NULL, wake, NULL));
    EXPECT(0, samum_wait_for(queue, timer, -1, &done));
    EXPECT(0, pthread_join(threads[0], NULL));
    next(SAMUM_WOKEN, 0, 0);
    EXPECT(0, samum_wait(queue, 50, &done, 1, &count)); /* some may have come since */
    quiet();
    EXPECT(1, signal(SIGUSR2, wake_in_handler) != SIG_ERR);
    EXPECT(0, raise(SIGUSR2));
    next(SAMUM_WOKEN, 0, 0);
}

int main(int argc, char **argv) {
    uint64_t dir;
    EXPECT(2, argc);
    for (int at = 0; at < LARGE; at++) bytes[at] = (unsigned char)(at * 31 + at / 4096);
    EXPECT(0, samum_queue_new(&queue));
    EXPECT(0, samum_directory(queue, open(argv[1], O_PATH | O_CLOEXEC), &dir));
    handed_over(argv[1]);
    reads(dir);
    receives(dir, argv[1]);
    readiness(argv[1]);
    wakers();
    /* Calls in flight when the queue goes. */
    uint64_t socket = connection(), file;
    int tmp = open(argv[1], O_TMPFILE | O_RDWR, 0600);
    EXPECT(0, samum_file(queue, tmp, 0, &file));
    EXPECT(0, samum_receive_file(queue, socket, file, 0, 10, 1, NULL));
    EXPECT(0, samum_ready(queue, pair[1], SAMUM_READABLE, 2, NULL));
    EXPECT(0, samum_open(queue, dir, "cold", SAMUM_NOCACHE, 3, NULL));
    file = next(SAMUM_OPENED, 3, 0).name;
    EXPECT(0, samum_read(queue, file, 0, back, COLD, 4, NULL));
    EXPECT(0, samum_queue_free(queue));
    EXPECT(0, is_open(tmp));
    EXPECT(0, samum_wake(waker)); /* of no queue any more */
    EXPECT(0, samum_waker_free(waker));
    return 0;
}
