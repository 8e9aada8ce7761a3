/* libsamum: asynchronous send, receive and sendfile, none of which waits for the disk.
 *
 * A program begins calls on a queue and waits for their completions. A send is a row of pieces, memory and ranges of
 * files, which leave in order and complete as one. A file that is not in memory is read in the background, so it holds up
 * neither the thread nor another socket. Files are opened, read, watched, written from sockets, and directories are listed in the
 * same way; connections, timers, signals, the ends of child processes, the readiness of other descriptors and wake-ups by other
 * threads come on the same queue.
 *
 *     samum_queue *queue;
 *     samum_queue_new(&queue);
 *     samum_socket(queue, fd, &socket);
 *     samum_send(queue, socket, pieces, 2, 0, token, NULL);
 *     samum_wait(queue, -1, completions, 16, &count);
 *
 * examples/serve.c is a file server of 100 lines, examples/send.c a program without a loop, examples/receive.c stores an upload.
 * README.md says how to link. Linux only; C99 or C++11.
 *
 * Results. Each function returns 0, or an errno, and then it has changed nothing unless it says so: what it would have
 * written to is as it was, a descriptor is still the caller's, and no completion will come. errno(3) itself means nothing.
 * All functions that take a queue can return
 *   EFAULT           a pointer is null that may not be;
 *   EPERM            the calling thread has not made the queue;
 *   ENOTRECOVERABLE  the library has found a mistake of its own, and has said so on the standard error. The queue is of no
 *                    use any more: it works on no memory, keeps its descriptors open, and can only be freed.
 * A null pointer as `queue` is EFAULT, but one that is not a queue, or was freed, is not found out. EFAULT comes before EINVAL.
 *
 * Threads. A queue belongs to the thread that made it; a program may have a queue in each of its threads. Another thread
 * ends a wait by samum_wake. No function may be called from a signal handler, except samum_wake, nor in a child of fork(2) that
 * goes on without execve(2).
 *
 * Signals. No function raises SIGPIPE. A signal does not end a wait; samum_signal makes it an event. The library has threads of
 * its own, for what the system can do only in a sleep: they block all signals but those that a thread raises by a fault of its
 * own (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS). Beneath a seccomp filter samum_queue_new, once in a process, makes a
 * child and waits for it, so the program gets a SIGCHLD.
 *
 * Blocking. samum_wait and samum_wait_for sleep until something has completed. samum_queue_new may sleep for a moment, and
 * samum_queue_free until operations that are under way have ended, a second at most. No other function sleeps, on blocking sockets neither.
 *
 * Disks that do not answer. A call that waits for one too long fails with ETIMEDOUT: see samum_queue_set_patience. What it was
 * waiting for cannot be taken back, so the system keeps that until the disk answers; other disks have the rest of the places.
 *
 * Names. Sockets, listeners, directories, files, listings and calls have names: numbers of one queue that are not 0 and not
 * used again. A name that is not valid, or no longer, or names another kind of thing, is EBADF, or passed over where that is
 * said; it never means something else. All but those of calls are the caller's to close; what is not closed goes with the
 * queue.
 *
 * Ownership. A descriptor that is handed over is closed by the library. Memory that a call works on stays the caller's:
 * it must stay where it is, and what is sent must stay as it is, until the call has completed, or samum_cancel, samum_close of
 * its socket, or samum_queue_free has returned. Pointers to anything else are only used during the call.
 */
#ifndef SAMUM_H
#define SAMUM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header: a million for each major version, a thousand for each minor one. A program runs with the library
 * that it was compiled with, and with later ones of the same name: the number of libsamum.so.0 becomes another one when
 * programs have to be compiled anew. */
#define SAMUM_VERSION 1000

/* Returns the version of the library that the program runs with: at least SAMUM_VERSION, unless an older one is installed than
 * it was compiled with. Any thread may call it. */
uint32_t samum_version(void);

/* A queue of calls. */
typedef struct samum_queue samum_queue;

/* Calls in flight, and completions of these that samum_wait has not written yet, of one queue; beyond that calls are refused with
 * EAGAIN. Further completions of an accept, a signal or a watch that goes on do not count. */
#define SAMUM_CALLS_MAX 65536

/* What is read of a file, and the page cache. Bytes that are in it leave from there in any case, and stay.
 *
 * With SAMUM_NOCACHE the bytes that a call has brought leave the page cache while samum_wait goes on: after a send that is under
 * way, and within a second after its end, however it ends; when a peer acknowledges late, once more after 0.8, 6 and 51 s.
 * samum_queue_free immediately tries once to discard the pages that are still there. A page that is in use cannot be discarded: bytes on their way to a
 * peer, on the same machine those that it has not read, and now and then a page that a processor has just filled. So a program that ends soon waits for samum_acknowledgement, then
 * frees its queue. One that ends without samum_queue_free discards nothing more. */
#define SAMUM_NOCACHE 1 /* nothing stays in it (FreeBSD's SF_NOCACHE) */
#define SAMUM_ALWAYS 2  /* all stays in it, and the kernel decides for how long */
#define SAMUM_POPULAR 3 /* files up to 1 GiB stay in it, and if 8 GiB have been sent, those that are sent most often */

/* A piece of what a call sends. Members that are not needed are 0, as in `= {.memory = "a", .length = 1}`. */
struct samum_piece {
    const void *memory; /* the first byte, if `file` is 0; may be null if `length` is 0 */
    uint64_t file;      /* the name of a file, or 0 for memory */
    uint64_t offset;    /* of a file: position of the first byte; of memory: not looked at */
    uint64_t length;    /* bytes; a range of a file ends at most where the file ended when it was opened */
    uint32_t readahead; /* of a file: bound of the bytes that are read ahead in this range; 0 is that of the call */
    uint32_t caching;   /* of a file: SAMUM_NOCACHE, SAMUM_ALWAYS or SAMUM_POPULAR for this range; 0 is that of the file */
};

/* What has completed. */
enum samum_event {
    SAMUM_SENT = 1,     /* samum_send: `bytes` have left; with an error fewer than there were, and always the first ones */
    SAMUM_RECEIVED = 2, /* samum_receive: `bytes` are in front of its memory; 0 without an error is the peer's end */
    SAMUM_ACCEPTED = 3, /* samum_accept: `name` is a socket; more will come, unless there is an error */
    SAMUM_OPENED = 4,   /* samum_open: `name` is a file of `bytes` bytes */
    SAMUM_CONNECTED = 5, /* samum_connect: `name` is a socket */
    SAMUM_TIMER = 6,    /* samum_timer: the time has come */
    SAMUM_SIGNAL = 7,   /* samum_signal: the signal has come; more will come, unless there is an error */
    SAMUM_ACKNOWLEDGED = 8, /* samum_acknowledgement: the peer has acknowledged `bytes`; EPIPE: it never will, it is gone */
    SAMUM_LISTED = 9,   /* samum_list: `name` is a listing of `bytes` entries */
    SAMUM_WATCHING = 10, /* samum_watch, once: changes are seen from now on; SAMUM_CHANGED will come */
    SAMUM_CHANGED = 11, /* samum_watch: the file may have changed; more will come, unless there is an error */
    SAMUM_EXITED = 12,  /* samum_child: `bytes` is the status of waitpid(2), for WIFEXITED and WEXITSTATUS */
    SAMUM_READ = 13,    /* samum_read: `bytes` are in front of its memory; fewer without an error are the end of the file */
    SAMUM_STORED = 14,  /* samum_receive_file: `bytes` are in the file; fewer without an error are the peer's end */
    SAMUM_READY = 15,   /* samum_ready: the descriptor is ready, or is in error */
    SAMUM_WOKEN = 16    /* samum_wake, of no call: `token` and `call` are 0 */
};

struct samum_completion {
    uint64_t token;     /* the call, as the caller named it */
    uint64_t call;      /* the call, as the library named it */
    uint64_t name;      /* of a new socket, file or listing, which is the caller's to close; else 0 */
    uint64_t bytes;     /* see enum samum_event; else 0 */
    uint32_t event;     /* enum samum_event */
    int32_t error;      /* 0 or an errno. Of a send, a receive or a read:
                         *   ECANCELED     it was cancelled
                         *   EBADF         its socket was closed
                         *   ECONNABORTED  an earlier send on this socket has left in part, or an earlier samum_receive_file
                         *                 has lost bytes: close the socket
                         *   EPIPE, ECONNRESET  the peer has gone (of a send, of a receive): close the socket
                         *   ENODATA       a file has become shorter
                         *   ETIMEDOUT     a disk has not answered in time
                         *   others        as the system said: EIO of a disk, ENOMEM, ...
                         * Of other calls: see the function. */
};

/* Makes a queue for the calling thread: on io_uring, or on epoll where io_uring cannot be had. May sleep for a moment.
 * On success *queue is the caller's, to be freed by samum_queue_free. Fails with EMFILE, ENFILE or ENOMEM. */
int samum_queue_new(samum_queue **queue);

/* Ends all calls without completions, discards what SAMUM_NOCACHE is to discard, closes everything that belongs to the queue, and
 * frees it. Null is passed over. With EPERM nothing has been done; with any other error the queue is gone all the same. It sleeps
 * until reads and other operations on files that are under way have ended, for a second at most. What a disk has not ended then is leaked: the descriptors and the
 * library's memory that it works on (16 MiB if that is a read), a thread perhaps; the library must stay loaded. The kernel may
 * not let the calling thread, and so the process, end before the disk answers. */
int samum_queue_free(samum_queue *queue);

/* Says in how many milliseconds a disk has to answer from now on; 0 is no limit. A new queue has 30000. A send fails with
 * ETIMEDOUT when one read of it takes longer: some of its bytes may have left. A samum_open or samum_list, or a samum_watch that
 * does not watch yet, fails with ETIMEDOUT when all of it takes longer; those that were begun before keep their limit. While a
 * disk does not answer, reads of it fail at once, but for one in each such time; ranges that are in memory are sent. */
int samum_queue_set_patience(samum_queue *queue, uint64_t milliseconds);

/* Hands over a connected stream socket, blocking or not; it stays as it is. Of a blocking socket files are copied through
 * memory, because sendfile(2) would sleep on it: O_NONBLOCK spares that. On success *socket (if not null) is its name, and
 * the descriptor is the library's. Fails with EBADF, ENOTSOCK. */
int samum_socket(samum_queue *queue, int fd, uint64_t *socket);

/* The same for a listening socket, which may become nonblocking. */
int samum_listener(samum_queue *queue, int fd, uint64_t *listener);

/* The same for a directory (O_PATH will do). Fails with EBADF, ENOTDIR. */
int samum_directory(samum_queue *queue, int fd, uint64_t *directory);

/* The same for a regular file that is open: of memfd_create(2), with O_TMPFILE, passed by another process. It is sent and read if
 * it was opened for reading, and filled by samum_receive_file if it was opened for writing. `flags` are those of samum_open. Its
 * size is taken now; what the program writes to it later is not seen (hand over a dup(2) of it then). The position of the
 * descriptor is neither used nor moved; O_NONBLOCK is taken off it, and O_NOATIME set if the file is the process's own. *file (if
 * not null) is its name. Fails with EBADF (O_PATH, too), EISDIR, and EINVAL for other flags, for what is no regular file, and for
 * descriptors with O_DIRECT or O_APPEND. */
int samum_file(samum_queue *queue, int fd, int flags, uint64_t *file);

/* Gives up a socket, listener, directory, file or listing. Its descriptor is closed in a later samum_wait, once nothing uses
 * it. Calls on a socket complete with EBADF, and use their memory no more when this returns. Calls that use something else
 * go on, and keep it open. Fails with EBADF. */
int samum_close(samum_queue *queue, uint64_t name);

/* shutdown(2) for sending: the peer sees the end of the stream after the bytes that have left. Sends in flight fail, so wait for them
 * first. Fails with EBADF. */
int samum_shutdown(samum_queue *queue, uint64_t socket);

/* The functions below, up to samum_ready, begin a call. Its completions carry `token`, which may be anything: a number, or a
 * pointer as uintptr_t. *call (if not null) is its name. All fail with EBADF, and with EAGAIN beyond SAMUM_CALLS_MAX; samum_send
 * also while the lists of pieces in flight take 64 MiB. Then wait, and try again. The error of a completion is ECANCELED if the
 * call was cancelled, and ETIMEDOUT if a disk has not answered in time. */

/* Accepts connections until it is cancelled or fails: SAMUM_ACCEPTED for each, whose socket is then the caller's to close. Errors
 * of the completion are those of accept(2), as EMFILE; then begin another when it can go on, after a pause (samum_timer). Several
 * of these calls for one listener share its connections; without io_uring a queue accepts 64 further ones of listeners that have one,
 * and another fails with ENOBUFS. */
int samum_accept(samum_queue *queue, uint64_t listener, uint64_t token, uint64_t *call);

/* Connects a stream socket: SAMUM_CONNECTED, and then the socket is the caller's to close. The address is that of connect(2), for
 * AF_INET, AF_INET6, or AF_UNIX with a path; it is copied. Errors of the completion are those of socket(2) and connect(2);
 * a timer and samum_cancel end what takes too long. Fails with EAFNOSUPPORT for other families, EINVAL for a `size`
 * that is too small or larger than struct sockaddr_storage, and ENOENT and ENAMETOOLONG for a path without, or with more than
 * 107 bytes. */
int samum_connect(samum_queue *queue, const struct sockaddr *address, socklen_t size, uint64_t token, uint64_t *call);

/* Waits for this many milliseconds from now: SAMUM_TIMER once, never earlier; 0 is the next samum_wait. The clock is
 * CLOCK_MONOTONIC. */
int samum_timer(samum_queue *queue, uint64_t milliseconds, uint64_t token, uint64_t *call);

/* Waits for signals with this number until it is cancelled or fails: SAMUM_SIGNAL for each. The signal stays the program's to
 * block, in all of its threads: with pthread_sigmask(3) before it starts the first. In a thread that does not block it, its
 * handler runs or its default action, and there is no event. Several of one signal that come together may be one event, as
 * signal(7) says; of several calls for one signal, in any queues, one has the event. The error of the completion is EINVAL
 * if this thread does not block the signal, which includes those that nothing can block (SIGKILL, SIGSTOP, 0), and EMFILE or
 * ENFILE without a free descriptor. Fails with EINVAL for SIGPIPE. */
int samum_signal(samum_queue *queue, int number, uint64_t token, uint64_t *call);

/* Waits for the end of a child process, and for no other: SAMUM_EXITED once. The child has then been waited for, so its number
 * may soon be another process's; no other code waits for it (a handler of SIGCHLD that calls waitpid(-1, ...) must not). One
 * whose call was cancelled, or whose queue was freed, can be waited for by other code. Errors of the completion are ECHILD for
 * what is no child of this process, or if other code has waited for it or the program ignores SIGCHLD, ESRCH if that was
 * before, and EMFILE or ENFILE without a free descriptor. Fails with EINVAL for 0 and less. */
int samum_child(samum_queue *queue, pid_t pid, uint64_t token, uint64_t *call);

/* Opens a regular file beneath a directory: SAMUM_OPENED, and then the file is the caller's to close. The path is relative;
 * neither `..` nor symbolic links lead out of the directory (EXDEV; so is an absolute path). EISDIR is the error of a directory,
 * EINVAL that of what is no regular file; others are those of openat2(2). `path` ends with a NUL, and is copied. `flags` are 0,
 * which is SAMUM_POPULAR, or SAMUM_NOCACHE or SAMUM_ALWAYS. To send a file of the process's own user does not change its access
 * time. Fails with EINVAL for other flags. */
int samum_open(samum_queue *queue, uint64_t directory, const char *path, int flags, uint64_t token, uint64_t *call);

/* Lists a directory beneath a directory, or for "." that itself: SAMUM_LISTED, and then the listing is the caller's to close.
 * For `path` and its errors see samum_open; that of what is no directory is ENOTDIR. At most `entries_max` entries are
 * kept, so that the memory that a listing takes has a bound. */
int samum_list(samum_queue *queue, uint64_t directory, const char *path, size_t entries_max, uint64_t token, uint64_t *call);

/* Watches one file beneath a directory, which need not exist yet, until it is cancelled or fails: SAMUM_WATCHING once, then
 * SAMUM_CHANGED when its contents or attributes may have changed, or it was created, removed, or replaced by rename(2). Several
 * changes together are one event. A program that reads the file after each of these events misses no change. For `path` see
 * samum_open, but no part of it may be a symbolic link (ELOOP). Other errors of the completion are ENOENT if its directory does
 * not exist or is removed, EISDIR, EACCES, ENOSPC beyond the user's watches (inotify(7)), and EOPNOTSUPP where changes made
 * elsewhere would go unseen: network file systems, FUSE. The kernel does not report that a directory is removed while something
 * keeps that open. The queue keeps `directory` open, so its own removal is no event: to learn of it, watch by a directory above
 * it, as in "sub/file". */
int samum_watch(samum_queue *queue, uint64_t directory, const char *path, uint64_t token, uint64_t *call);

/* Waits until the peer has acknowledged this many bytes of all sends on a socket: SAMUM_ACKNOWLEDGED. Of TCP the kernel tells, of
 * Unix sockets the library asks 20 times a second. Errors of the completion are EBADF if the socket was closed, and EPIPE if the
 * connection has ended before the peer has acknowledged this many. */
int samum_acknowledgement(samum_queue *queue, uint64_t socket, uint64_t bytes, uint64_t token, uint64_t *call);

/* Sends pieces in their order: SAMUM_SENT when the system has accepted all of them. Sends on one socket leave in the order of the
 * calls. If a send fails after some of its bytes have left, those after it fail, too (ECONNABORTED). `readahead` bounds the
 * bytes that are read ahead for this call; 0 means 2 MiB, and 4 GiB or more one byte less than that. The array `pieces` is
 * copied; the memory is copied when it leaves: to a peer on the same machine a zero-copy send did not pay. Files may be closed
 * meanwhile. Fails with EINVAL for a range beyond the end of its file, for more than 2^62 bytes, for an array larger than memory
 * can be, and for another `caching` than those above. */
int samum_send(samum_queue *queue, uint64_t socket, const struct samum_piece *pieces, size_t count, uint64_t readahead,
               uint64_t token, uint64_t *call);

/* Receives what comes next, at least one byte, into the front of the memory: SAMUM_RECEIVED. The rest of it is as it was.
 * Receives on one socket are filled in the order of the calls. Fails with EINVAL for a `size` of 0, or larger than memory
 * can be. */
int samum_receive(samum_queue *queue, uint64_t socket, void *memory, size_t size, uint64_t token, uint64_t *call);

/* Receives what comes next into a file, from `offset` on, until `length` bytes have come or the peer has ended: SAMUM_STORED, with
 * the bytes that are in the file. In one row with samum_receive on that socket. The bytes are in the page cache then, and on the
 * disk after the program's fsync(2). The file's end moves with them, for later calls and samum_stat. With an error bytes may have
 * been taken off the socket that are not in the file: then later receives fail with ECONNABORTED, and at most 128 KiB of what was
 * received may still come to the file, even when samum_cancel has returned. The error is ENOSPC or another one of write(2),
 * ETIMEDOUT, or as of samum_receive. Closing the file does not end the call. Fails with EBADF also for a file that is not open
 * for writing, as none of samum_open is, and with EINVAL for a `length` of 0 or an end beyond 2^62. */
int samum_receive_file(samum_queue *queue, uint64_t socket, uint64_t file, uint64_t offset, uint64_t length, uint64_t token,
                       uint64_t *call);

/* Reads a file from `offset` on into the front of the memory: SAMUM_READ, with fewer bytes than `size` only at the end of the file,
 * as it was when it was opened, or with an error: then they are the first ones. The rest of the memory may have been written to.
 * A file that is not in memory is read in the background, through a buffer of the library. Caching is that of the file. Fails with
 * EBADF also for a file that is not open for reading, and with EINVAL as samum_receive does. */
int samum_read(samum_queue *queue, uint64_t file, uint64_t offset, void *memory, size_t size, uint64_t token, uint64_t *call);

/* The directions of samum_ready. */
#define SAMUM_READABLE 1 /* POLLIN of poll(2) */
#define SAMUM_WRITABLE 2 /* POLLOUT */

/* Waits until a descriptor of any kind that poll(2) waits for is ready in one of these directions, or in error: SAMUM_READY once.
 * For what has no call here: datagrams, pipes, terminals, eventfds, descriptors of other libraries. It is a hint, as in poll(2):
 * another thread may be faster. The descriptor stays the caller's, who may close it at once: the library waits on a duplicate.
 * Fails with EBADF, EINVAL for another `direction`, EPERM for regular files and directories, which are always ready, and EMFILE.
 * The error of the completion is ECANCELED, or EPERM for other descriptors that epoll(7) refuses. */
int samum_ready(samum_queue *queue, int fd, uint32_t direction, uint64_t token, uint64_t *call);

/* Wakes the thread of a queue from other threads. */
typedef struct samum_waker samum_waker;

/* Makes a waker of this queue. On success *waker is the caller's, to be freed by samum_waker_free, before the queue or after it. A
 * queue may have any number. Fails with EMFILE, ENFILE or ENOMEM. */
int samum_waker_new(samum_queue *queue, samum_waker **waker);

/* Ends the wait of the waker's queue, or its next one: SAMUM_WOKEN, one for all wakers and calls since the last. Any thread may call
 * it, any number at the same time, and a signal handler. It does not sleep. Of a queue that was freed it does nothing. What the
 * thread wrote before is seen by the queue's thread after SAMUM_WOKEN. Fails with EFAULT for null. */
int samum_wake(const samum_waker *waker);

/* Frees a waker, which no thread may be using. Null is passed over. Any thread may call it. */
int samum_waker_free(samum_waker *waker);

/* The functions below return at once. */

/* Ends a call. It completes in the next samum_wait: a send or a receive with ECANCELED, and its memory is used no more when this
 * returns; a samum_open, samum_list or samum_watch with ECANCELED, also if its disk does not answer; another call with ECANCELED
 * or with what had happened before, as soon as the kernel says which. One that has completed is passed over. Fails with EINVAL
 * for what is no name of a call. */
int samum_cancel(samum_queue *queue, uint64_t call);

/* Writes to *bytes how many bytes of the sends on a socket the peer has acknowledged; of a Unix socket about those that it has
 * read, and if it has left without reading all, those that it was known to have read. Acknowledged is not unreferenced: a
 * peer on the same machine shares the pages of a file until it has read them, so a file that is written then changes what it
 * reads. Memory is copied, and may be written once SAMUM_SENT has come. Fails with EBADF. */
int samum_acknowledged(samum_queue *queue, uint64_t socket, uint64_t *bytes);

/* A file when it was opened, as stat(2) says. */
struct samum_stat {
    uint64_t size;        /* bytes */
    int64_t mtime, ctime; /* last modification, and last change of anything, seconds since 1970 */
    uint64_t device, inode;
    uint32_t mtime_nanos, ctime_nanos; /* the nanoseconds that belong to them */
};

/* Writes to *stat what the file was when it was opened; it is not asked for again. Fails with EBADF. */
int samum_stat(samum_queue *queue, uint64_t file, struct samum_stat *stat);

/* The kind of an entry of a directory. */
enum samum_kind { SAMUM_KIND_DIRECTORY = 1, SAMUM_KIND_REGULAR = 2, SAMUM_KIND_SYMLINK = 3, SAMUM_KIND_OTHER = 4 };

/* An entry of a directory. */
struct samum_entry {
    uint64_t size;    /* bytes */
    int64_t mtime;    /* last modification, seconds since 1970 */
    const char *name; /* ends with a NUL, has no `/` */
    uint32_t kind;    /* enum samum_kind; links are not followed */
};

/* Writes to *entry an entry of a listing, by its number from 0 on: directories come first, then the others, both by name; `.`
 * and `..` are left out. Its name is the library's, and stays until the listing is closed or the queue is freed. Fails with
 * EBADF; and after the last entry with ENOENT, or with EOVERFLOW if the directory had more than samum_list was to keep. */
int samum_entry(samum_queue *queue, uint64_t listing, size_t index, struct samum_entry *entry);

/* Goes on with all calls, and sleeps until one has completed, or `timeout_ms` milliseconds have passed (0: only look; negative:
 * no limit). Writes *count completions, at most `room`; those that have no room come next time. Without completions the time is
 * over, and that is no error. Calls go on only in this function and the next, so call them again and again. Fails with EINVAL
 * for a `room` of 0, and with what io_uring_enter(2) or epoll_wait(2) says if that is for good: free the queue then. */
int samum_wait(samum_queue *queue, int timeout_ms, struct samum_completion *completions, size_t room, size_t *count);

/* Does the same until this call has completed, or one of which more come has come once more, and writes *completion. All other
 * calls go on meanwhile, and their completions stay for samum_wait; nothing bounds those of an accept in flight, each of which
 * holds a socket, so cancel it before a long wait. So samum_send and this are a send that sleeps until all has
 * left, as sendfile(2) does on a blocking socket, and a disk that this send waits for holds up no other (examples/send.c). Fails
 * with ETIMEDOUT if the time is over: the call goes on. Fails with EINVAL for what is no name of a call, or the name of one
 * whose last completion was written, and as samum_wait. */
int samum_wait_for(samum_queue *queue, uint64_t call, int timeout_ms, struct samum_completion *completion);

#ifdef __cplusplus
}
#endif

#endif
