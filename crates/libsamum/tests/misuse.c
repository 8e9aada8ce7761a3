/* What samum.h says of mistakes, of what is unchanged after them, and of memory. Exits with 0 if all of it is so. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "expect.h"

_Static_assert(sizeof(struct samum_piece) == 32 + sizeof(void *), "as in the library");
_Static_assert(sizeof(struct samum_completion) == 40, "as in the library");

static void *elsewhere(void *unused) {
    EXPECT(EPERM, samum_close(queue, 1));
    EXPECT(EPERM, samum_queue_free(queue));
    return unused;
}

int main(void) {
    EXPECT(EFAULT, samum_queue_new(NULL));
    EXPECT(0, samum_queue_free(NULL));
    EXPECT(EFAULT, samum_close(NULL, 1));
    EXPECT(0, samum_queue_new(&queue));
    pthread_t thread;
    EXPECT(0, pthread_create(&thread, NULL, elsewhere, NULL));
    EXPECT(0, pthread_join(thread, NULL));

    /* Descriptors. */
    uint64_t name = 7, dir, call;
    int null = open("/dev/null", O_RDONLY), pair[2];
    EXPECT(EBADF, samum_socket(queue, -1, &name));
    EXPECT(EBADF, samum_socket(queue, 1000, &name));
    EXPECT(ENOTSOCK, samum_socket(queue, null, &name));
    EXPECT(ENOTDIR, samum_directory(queue, null, &name));
    EXPECT(7, name);
    EXPECT(0, close(null)); /* it is still ours */
    EXPECT(0, samum_directory(queue, open("/", O_PATH), &dir));
    EXPECT(EFAULT, samum_open(queue, dir, NULL, 0, 1, NULL));
    EXPECT(EINVAL, samum_open(queue, dir, "etc", 4, 1, NULL));
    EXPECT(EINVAL, samum_open(queue, dir, "etc", -1, 1, NULL));
    EXPECT(0, samum_open(queue, dir, "etc", 0, 1, NULL));
    EXPECT(EISDIR, completion().error);
    EXPECT(0, samum_open(queue, dir, "dev/null", 0, 1, NULL));
    EXPECT(EINVAL, completion().error);
    EXPECT(0, samum_open(queue, dir, "no such file", 0, 1, NULL));
    EXPECT(ENOENT, completion().error);
    EXPECT(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    EXPECT(0, samum_socket(queue, pair[0], &name));

    /* Names. */
    EXPECT(EBADF, samum_shutdown(queue, dir));
    EXPECT(EBADF, samum_accept(queue, name, 1, NULL));
    EXPECT(EBADF, samum_open(queue, name, "etc", 0, 1, NULL));
    EXPECT(EBADF, samum_close(queue, 0));
    EXPECT(EINVAL, samum_cancel(queue, name));

    /* Memory. */
    char memory[16] = "................";
    struct samum_piece bad[] = {{.length = 1}, {.file = dir, .length = 1}, {.memory = "x", .length = UINT64_MAX}};
    EXPECT(EFAULT, samum_send(queue, name, &bad[0], 1, 0, 1, NULL));
    EXPECT(EBADF, samum_send(queue, name, &bad[1], 1, 0, 1, NULL));
    EXPECT(EINVAL, samum_send(queue, name, &bad[2], 1, 0, 1, NULL));
    bad[2].length = (uint64_t)1 << 63;
    EXPECT(EINVAL, samum_send(queue, name, &bad[2], 1, 0, 1, NULL));
    bad[2].length = ((uint64_t)1 << 62) + 1;
    EXPECT(EINVAL, samum_send(queue, name, &bad[2], 1, 0, 1, NULL));
    EXPECT(EINVAL, samum_send(queue, name, &bad[2], (size_t)1 << (sizeof(size_t) * 8 - 4), 0, 1, NULL));
    EXPECT(EFAULT, samum_send(queue, name, NULL, 1, 0, 1, NULL));
    EXPECT(EFAULT, samum_send(NULL, name, bad, 1, 0, 1, NULL));
    EXPECT(EINVAL, samum_receive(queue, name, memory, 0, 1, NULL));
    EXPECT(EINVAL, samum_receive(queue, name, memory, SIZE_MAX, 1, NULL));
    EXPECT(EFAULT, samum_receive(queue, name, NULL, 16, 1, NULL));
    EXPECT(EFAULT, samum_receive(queue, name, NULL, 0, 1, NULL));
    EXPECT(EFAULT, samum_receive(NULL, name, memory, 0, 1, NULL));
    EXPECT(0, samum_receive(queue, name, memory, 16, 8, &call));
    EXPECT(0, samum_cancel(queue, call));
    struct samum_completion done = completion();
    EXPECT(ECANCELED, done.error);
    EXPECT(1, done.token == 8 && done.call == call && done.event == SAMUM_RECEIVED);
    EXPECT(0, samum_cancel(queue, call)); /* passed over */
    EXPECT(0, samum_receive(queue, name, memory, 16, 9, NULL));
    EXPECT(3, write(pair[1], "abc", 3));
    EXPECT(3, completion().bytes);
    EXPECT(0, memcmp(memory, "abc.............", 16));

    /* Acknowledgements. */
    struct samum_piece hello = {.memory = "hello", .length = 5};
    uint64_t bytes = 7;
    EXPECT(EBADF, samum_acknowledged(queue, dir, &bytes));
    EXPECT(0, samum_acknowledged(queue, name, &bytes));
    EXPECT(EFAULT, samum_acknowledged(queue, name, NULL));
    EXPECT(0, bytes);
    EXPECT(EBADF, samum_acknowledgement(queue, dir, 5, 1, NULL));
    EXPECT(0, samum_acknowledgement(queue, name, 5, 5, &call));
    EXPECT(0, samum_cancel(queue, call));
    done = completion();
    EXPECT(1, done.token == 5 && done.event == SAMUM_ACKNOWLEDGED && done.error == ECANCELED);
    EXPECT(0, samum_send(queue, name, &hello, 1, 0, 6, NULL));
    EXPECT(5, completion().bytes);
    EXPECT(5, read(pair[1], memory, 5));
    EXPECT(0, samum_acknowledgement(queue, name, 5, 7, NULL));
    done = completion();
    EXPECT(1, done.token == 7 && done.event == SAMUM_ACKNOWLEDGED && done.error == 0 && done.bytes == 5);

    /* A send of which a part has left breaks its socket. */
    static char large[32 << 20];
    struct samum_piece pieces[] = {{.memory = large, .length = sizeof large}, {.length = 0}};
    size_t count;
    EXPECT(0, samum_send(queue, name, pieces, 2, 0, 10, &call));
    EXPECT(0, samum_send(queue, name, &pieces[1], 1, 0, 11, NULL));
    EXPECT(0, samum_wait(queue, 0, &done, 1, &count));
    EXPECT(0, count);
    EXPECT(0, samum_cancel(queue, call));
    done = completion();
    EXPECT(1, done.token == 10 && done.error == ECANCELED && done.bytes > 0 && done.bytes < sizeof large);
    EXPECT(ECONNABORTED, completion().error);

    /* A socket that is closed. */
    EXPECT(0, samum_receive(queue, name, memory, 16, 12, NULL));
    EXPECT(0, samum_close(queue, name));
    EXPECT(EBADF, completion().error);
    EXPECT(EBADF, samum_receive(queue, name, memory, 16, 13, NULL));

    /* A file for a peer that has gone: an error, and no SIGPIPE. */
    EXPECT(0, samum_open(queue, dir, "etc/passwd", SAMUM_NOCACHE, 1, NULL));
    done = completion();
    EXPECT(0, done.error);
    EXPECT(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    EXPECT(0, close(pair[1]));
    EXPECT(0, samum_socket(queue, pair[0], &name));
    struct samum_piece file = {.file = done.name, .length = done.bytes};
    file.caching = 4;
    EXPECT(EINVAL, samum_send(queue, name, &file, 1, 0, 15, NULL));
    file.caching = 0;
    EXPECT(0, samum_send(queue, name, &file, 1, 0, 15, NULL));
    EXPECT(EPIPE, completion().error);
    EXPECT(0, samum_close(queue, done.name));
    EXPECT(EBADF, samum_close(queue, done.name));
    file.length++;
    EXPECT(EBADF, samum_send(queue, name, &file, 1, 0, 15, NULL));

    /* Timers. */
    EXPECT(0, samum_timer(queue, 20, 20, &call));
    EXPECT(EINVAL, samum_wait(queue, 1000, &done, 0, &count));
    EXPECT(EFAULT, samum_wait(queue, 1000, NULL, 0, &count));
    EXPECT(EFAULT, samum_wait(queue, 1000, &done, 1, NULL));
    EXPECT(EFAULT, samum_wait(NULL, 1000, &done, 0, &count));
    done = completion();
    EXPECT(1, done.token == 20 && done.call == call && done.event == SAMUM_TIMER && done.error == 0);
    EXPECT(0, samum_timer(queue, UINT64_MAX, 21, &call));
    EXPECT(0, samum_wait(queue, 0, &done, 1, &count));
    EXPECT(0, count);
    EXPECT(0, samum_cancel(queue, call));
    done = completion();
    EXPECT(1, done.token == 21 && done.event == SAMUM_TIMER && done.error == ECANCELED);
    EXPECT(EFAULT, samum_timer(NULL, 0, 1, NULL));

    /* One of several calls. */
    uint64_t later;
    EXPECT(0, samum_timer(queue, 0, 40, NULL));
    EXPECT(0, samum_timer(queue, 20, 41, &call));
    EXPECT(0, samum_timer(queue, 100000, 42, &later));
    EXPECT(EFAULT, samum_wait_for(queue, call, -1, NULL));
    EXPECT(EFAULT, samum_wait_for(NULL, call, -1, &done));
    EXPECT(EINVAL, samum_wait_for(queue, name, -1, &done));
    EXPECT(0, samum_wait_for(queue, call, -1, &done));
    EXPECT(1, done.token == 41 && done.call == call && done.event == SAMUM_TIMER && done.error == 0);
    EXPECT(EINVAL, samum_wait_for(queue, call, -1, &done)); /* it has completed */
    EXPECT(ETIMEDOUT, samum_wait_for(queue, later, 10, &done));
    EXPECT(41, done.token);    /* unchanged by what failed */
    EXPECT(40, completion().token);  /* it has come meanwhile */
    EXPECT(0, samum_timer(queue, 0, 43, NULL));
    EXPECT(0, samum_timer(queue, 0, 44, &call));
    EXPECT(43, completion().token);
    EXPECT(0, samum_wait_for(queue, call, 0, &done)); /* it came with that one */
    EXPECT(44, done.token);
    EXPECT(0, samum_cancel(queue, later));
    EXPECT(ECANCELED, completion().error);

    /* More calls than there may be: those whose completions were not taken count, too. */
    for (int i = 0; i < SAMUM_CALLS_MAX; i++) EXPECT(0, samum_timer(queue, 0, 26, NULL));
    EXPECT(EAGAIN, samum_timer(queue, 0, 26, NULL));
    EXPECT(26, completion().token);
    EXPECT(0, samum_timer(queue, 0, 27, &call));
    EXPECT(EAGAIN, samum_timer(queue, 0, 27, NULL));
    EXPECT(EAGAIN, samum_open(queue, dir, "etc/passwd", SAMUM_NOCACHE, 27, NULL));
    for (int i = 1; i < SAMUM_CALLS_MAX; i++) EXPECT(26, completion().token);
    EXPECT(27, completion().token);

    /* Connections. */
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *to = (struct sockaddr *)&address;
    socklen_t size = sizeof address;
    EXPECT(0, bind(listener, to, size));
    EXPECT(0, getsockname(listener, to, &size));
    EXPECT(0, samum_connect(queue, to, size, 22, NULL));
    EXPECT(ECONNREFUSED, completion().error); /* it does not listen */
    EXPECT(0, listen(listener, 1));
    EXPECT(0, samum_connect(queue, to, size, 23, &call));
    done = completion();
    EXPECT(1, done.token == 23 && done.call == call && done.event == SAMUM_CONNECTED && done.error == 0);
    name = done.name;
    struct samum_piece word = {.memory = "hello", .length = 5};
    EXPECT(0, samum_send(queue, name, &word, 1, 0, 24, NULL));
    EXPECT(5, completion().bytes);
    int peer = accept(listener, NULL, NULL);
    EXPECT(5, read(peer, memory, 16));
    EXPECT(0, memcmp(memory, "hello", 5));
    EXPECT(0, samum_close(queue, name));
    EXPECT(0, close(peer));

    /* Two accepts of one listener, of which one is cancelled. */
    uint64_t accepts[2];
    EXPECT(0, samum_listener(queue, listener, &name));
    for (int i = 0; i < 2; i++) EXPECT(0, samum_accept(queue, name, 28, &accepts[i]));
    EXPECT(0, samum_cancel(queue, accepts[0]));
    done = completion();
    EXPECT(1, done.call == accepts[0] && done.error == ECANCELED);
    peer = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(0, connect(peer, to, size));
    done = completion();
    EXPECT(1, done.call == accepts[1] && done.event == SAMUM_ACCEPTED && done.error == 0);
    EXPECT(0, samum_close(queue, done.name));
    EXPECT(0, close(peer));
    EXPECT(0, samum_cancel(queue, accepts[1]));
    EXPECT(ECANCELED, completion().error);
    EXPECT(0, samum_close(queue, name));
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "/no such socket"};
    EXPECT(0, samum_connect(queue, (struct sockaddr *)&path, sizeof path, 25, NULL));
    done = completion();
    EXPECT(1, done.token == 25 && done.event == SAMUM_CONNECTED && done.error == ENOENT && done.name == 0);
    memset(path.sun_path, 'x', sizeof path.sun_path);
    EXPECT(ENAMETOOLONG, samum_connect(queue, (struct sockaddr *)&path, sizeof path, 1, NULL));
    EXPECT(ENOENT, samum_connect(queue, (struct sockaddr *)&path, 2, 1, NULL));
    EXPECT(EFAULT, samum_connect(queue, NULL, size, 1, NULL));
    EXPECT(EFAULT, samum_connect(queue, NULL, 0, 1, NULL));
    EXPECT(EFAULT, samum_connect(queue, NULL, 100000, 1, NULL));
    EXPECT(EFAULT, samum_connect(NULL, to, 100000, 1, NULL));
    EXPECT(EINVAL, samum_connect(queue, to, 0, 1, NULL));
    EXPECT(EINVAL, samum_connect(queue, to, 1, 1, NULL));
    EXPECT(EINVAL, samum_connect(queue, to, size - 1, 1, NULL));
    EXPECT(EINVAL, samum_connect(queue, to, 100000, 1, NULL));
    address.sin_family = AF_INET6;
    EXPECT(EINVAL, samum_connect(queue, to, size, 1, NULL)); /* too small for one */
    address.sin_family = AF_APPLETALK;
    EXPECT(EAFNOSUPPORT, samum_connect(queue, to, size, 1, NULL));

    /* Signals. */
    sigset_t set;
    EXPECT(0, sigemptyset(&set));
    EXPECT(0, sigaddset(&set, SIGUSR1));
    EXPECT(EINVAL, samum_signal(queue, SIGPIPE, 1, NULL));
    EXPECT(0, samum_signal(queue, SIGUSR1, 30, NULL));
    EXPECT(EINVAL, completion().error); /* it is not blocked */
    EXPECT(0, pthread_sigmask(SIG_BLOCK, &set, NULL));
    int unblockable[] = {0, SIGKILL, SIGSTOP, 65, -1};
    for (int i = 0; i < 5; i++) {
        EXPECT(0, samum_signal(queue, unblockable[i], 31, NULL));
        done = completion();
        EXPECT(1, done.token == 31 && done.event == SAMUM_SIGNAL && done.error == EINVAL);
    }
    EXPECT(0, samum_signal(queue, SIGUSR1, 32, &call));
    for (int i = 0; i < 3; i++) {
        EXPECT(0, kill(getpid(), SIGUSR1)); /* the library's threads do not take it */
        done = completion();
        EXPECT(1, done.token == 32 && done.call == call && done.event == SAMUM_SIGNAL && done.error == 0);
    }
    EXPECT(0, samum_cancel(queue, call));
    EXPECT(ECANCELED, completion().error);

    /* A call in flight when the queue goes. */
    int other[2];
    EXPECT(0, socketpair(AF_UNIX, SOCK_STREAM, 0, other));
    EXPECT(0, samum_socket(queue, other[0], &name));
    EXPECT(0, samum_receive(queue, name, memory, 16, 14, NULL));
    EXPECT(0, samum_queue_free(queue));
    EXPECT(0, read(other[1], memory, 16)); /* the other end is closed */
    return 0;
}
