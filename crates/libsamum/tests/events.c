/* What samum.h says of files, directories and children. Its argument is an empty directory. Exits with 0 if all of it is so. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

_Static_assert(sizeof(struct samum_entry) == 16 + 2 * sizeof(void *), "as in the library");
_Static_assert(sizeof(struct samum_stat) == 48, "as in the library");

static struct samum_completion next(uint32_t event, uint64_t token, int error) {
    struct samum_completion one = completion();
    EXPECT(event, one.event);
    EXPECT(token, one.token);
    EXPECT(error, one.error);
    return one;
}

/* Waits until nothing more is told. */
static void quiet(void) {
    struct samum_completion some[16];
    size_t count;
    do {
        EXPECT(0, samum_wait(queue, 100, some, 16, &count));
    } while (count > 0);
}

static void write_file(int dir, const char *path, const char *text) {
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    EXPECT(1, fd >= 0);
    EXPECT(strlen(text), write(fd, text, strlen(text)));
    EXPECT(0, close(fd));
}

static void files(uint64_t dir, int fd) {
    struct samum_stat stat = {.size = 7};
    struct stat is;
    write_file(fd, "file", "hello");
    EXPECT(0, samum_open(queue, dir, "file", 0, 1, NULL));
    uint64_t file = next(SAMUM_OPENED, 1, 0).name;
    write_file(fd, "file", "hello again");
    EXPECT(EBADF, samum_stat(queue, dir, &stat));
    EXPECT(EFAULT, samum_stat(queue, file, NULL));
    EXPECT(7, stat.size); /* unchanged by what failed */
    EXPECT(0, samum_stat(queue, file, &stat));
    EXPECT(0, fstatat(fd, "file", &is, 0));
    EXPECT(5, stat.size); /* as it was */
    EXPECT(1, stat.inode == is.st_ino && stat.device == is.st_dev && stat.mtime <= is.st_mtime && stat.mtime > 0);
    EXPECT(0, samum_close(queue, file));
    EXPECT(EBADF, samum_stat(queue, file, &stat));
    EXPECT(0, samum_open(queue, dir, "../x", 0, 2, NULL));
    next(SAMUM_OPENED, 2, EXDEV);
    EXPECT(0, samum_open(queue, dir, "/etc/passwd", 0, 3, NULL));
    next(SAMUM_OPENED, 3, EXDEV);
    EXPECT(0, unlinkat(fd, "file", 0));
}

static void listings(uint64_t dir, int fd) {
    struct samum_entry entry = {.size = 7};
    const char *names[] = {"directory", "a", "b", "link"};
    const uint32_t kinds[] = {SAMUM_KIND_DIRECTORY, SAMUM_KIND_REGULAR, SAMUM_KIND_REGULAR, SAMUM_KIND_SYMLINK};
    EXPECT(0, mkdirat(fd, "directory", 0755));
    write_file(fd, "b", "bb");
    write_file(fd, "a", "");
    EXPECT(0, symlinkat("a", fd, "link"));
    EXPECT(0, samum_list(queue, dir, ".", 10, 1, NULL));
    struct samum_completion done = next(SAMUM_LISTED, 1, 0);
    EXPECT(4, done.bytes);
    EXPECT(ENOENT, samum_entry(queue, done.name, 4, &entry));
    EXPECT(EBADF, samum_entry(queue, dir, 0, &entry));
    EXPECT(EFAULT, samum_entry(queue, done.name, 0, NULL));
    EXPECT(7, entry.size); /* unchanged by what failed */
    const char *first = NULL;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 4; i++) {
            EXPECT(0, samum_entry(queue, done.name, i, &entry));
            EXPECT(0, strcmp(names[i], entry.name));
            EXPECT(kinds[i], entry.kind);
            EXPECT(1, entry.mtime > 0);
            if (i == 2) EXPECT(2, entry.size);
            if (i == 0 && round == 0) first = entry.name;
        }
    }
    EXPECT(0, strcmp("directory", first)); /* it stays where it is */
    EXPECT(0, samum_close(queue, done.name));
    EXPECT(EBADF, samum_entry(queue, done.name, 0, &entry));
    EXPECT(0, samum_list(queue, dir, ".", 1, 2, NULL));
    done = next(SAMUM_LISTED, 2, 0);
    EXPECT(1, done.bytes);
    EXPECT(EOVERFLOW, samum_entry(queue, done.name, 1, &entry));
    EXPECT(0, samum_list(queue, dir, "directory", 1, 3, NULL));
    done = next(SAMUM_LISTED, 3, 0);
    EXPECT(0, done.bytes);
    EXPECT(ENOENT, samum_entry(queue, done.name, 0, &entry));
    EXPECT(0, samum_list(queue, dir, "a", 1, 4, NULL));
    next(SAMUM_LISTED, 4, ENOTDIR);
    EXPECT(0, samum_list(queue, dir, "..", 1, 5, NULL));
    next(SAMUM_LISTED, 5, EXDEV);
    EXPECT(EFAULT, samum_list(queue, dir, NULL, 1, 6, NULL));
    EXPECT(EBADF, samum_list(queue, done.name, ".", 1, 6, NULL));
}

static void watches(uint64_t dir, int fd) {
    uint64_t call;
    EXPECT(0, samum_watch(queue, dir, "watched", 1, &call));
    EXPECT(1, next(SAMUM_WATCHING, 1, 0).call == call);
    write_file(fd, "watched", "created");
    EXPECT(1, next(SAMUM_CHANGED, 1, 0).call == call);
    quiet();
    EXPECT(0, renameat(fd, "b", fd, "watched"));
    next(SAMUM_CHANGED, 1, 0);
    quiet();
    EXPECT(0, samum_cancel(queue, call));
    next(SAMUM_CHANGED, 1, ECANCELED);
    write_file(fd, "watched", "not told");
    quiet();
    EXPECT(0, samum_watch(queue, dir, "nothing/watched", 2, NULL));
    next(SAMUM_CHANGED, 2, ENOENT);
    EXPECT(0, samum_watch(queue, dir, "link", 3, NULL));
    next(SAMUM_CHANGED, 3, ELOOP);
    EXPECT(0, samum_watch(queue, dir, "directory", 4, NULL));
    next(SAMUM_CHANGED, 4, EISDIR);
    /* A directory that is removed: an error, unless it is one that the queue keeps open. */
    uint64_t removed;
    EXPECT(0, mkdirat(fd, "removed", 0755));
    EXPECT(0, samum_watch(queue, dir, "removed/file", 5, NULL));
    next(SAMUM_WATCHING, 5, 0);
    EXPECT(0, unlinkat(fd, "removed", AT_REMOVEDIR));
    next(SAMUM_CHANGED, 5, ENOENT);
    EXPECT(0, mkdirat(fd, "removed", 0755));
    EXPECT(0, samum_directory(queue, openat(fd, "removed", O_PATH | O_CLOEXEC), &removed));
    EXPECT(0, samum_watch(queue, removed, "file", 6, &call));
    next(SAMUM_WATCHING, 6, 0);
    EXPECT(0, unlinkat(fd, "removed", AT_REMOVEDIR));
    size_t count;
    struct samum_completion none;
    EXPECT(0, samum_wait(queue, 200, &none, 1, &count));
    EXPECT(0, count);
    EXPECT(0, samum_cancel(queue, call));
    next(SAMUM_CHANGED, 6, ECANCELED);
    EXPECT(EFAULT, samum_watch(queue, dir, NULL, 5, NULL));
    EXPECT(EBADF, samum_watch(queue, 0, "file", 5, NULL));
}

/* Begins a child that ends with this status when its input has ended. */
static pid_t begin(int status, int *input) {
    int ends[2];
    EXPECT(0, pipe2(ends, O_CLOEXEC));
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? status : 99);
    }
    EXPECT(1, pid > 0);
    EXPECT(0, close(ends[0]));
    *input = ends[1];
    return pid;
}

static void children(void) {
    struct samum_completion done;
    size_t count;
    uint64_t call;
    int input, status;
    pid_t pid = begin(7, &input);
    EXPECT(0, samum_child(queue, pid, 1, NULL));
    EXPECT(0, samum_wait(queue, 50, &done, 1, &count));
    EXPECT(0, count);
    EXPECT(0, close(input));
    done = next(SAMUM_EXITED, 1, 0);
    EXPECT(1, WIFEXITED((int)done.bytes));
    EXPECT(7, WEXITSTATUS((int)done.bytes));
    EXPECT(-1, waitpid(pid, NULL, 0)); /* it was waited for */
    pid = begin(0, &input);
    EXPECT(0, samum_child(queue, pid, 2, NULL));
    EXPECT(0, kill(pid, SIGKILL));
    done = next(SAMUM_EXITED, 2, 0);
    EXPECT(SIGKILL, WTERMSIG((int)done.bytes));
    EXPECT(0, close(input));
    pid = begin(3, &input);
    EXPECT(0, samum_child(queue, pid, 3, &call));
    EXPECT(0, samum_cancel(queue, call));
    next(SAMUM_EXITED, 3, ECANCELED);
    EXPECT(0, close(input));
    EXPECT(pid, waitpid(pid, &status, 0)); /* it still can be */
    EXPECT(3, WEXITSTATUS(status));
    EXPECT(0, samum_child(queue, getpid(), 4, NULL));
    next(SAMUM_EXITED, 4, ECHILD);
    EXPECT(EINVAL, samum_child(queue, 0, 5, NULL));
    EXPECT(EINVAL, samum_child(queue, -1, 5, NULL));
}

int main(int argc, char **argv) {
    EXPECT(2, argc);
    EXPECT(SAMUM_VERSION, samum_version());
    EXPECT(0, samum_queue_new(&queue));
    int fd = open(argv[1], O_PATH | O_CLOEXEC);
    uint64_t dir;
    EXPECT(0, samum_directory(queue, dup(fd), &dir));
    children(); /* before the queue has threads: see fork(2) */
    files(dir, fd);
    listings(dir, fd);
    watches(dir, fd);
    EXPECT(0, samum_queue_free(queue));
    return 0;
}
