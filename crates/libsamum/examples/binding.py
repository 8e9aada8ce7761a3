"""Sends and reads a file from Python, by cffi and the header as it is. `python3 binding.py HEADER LIBRARY DIRECTORY FILE`"""

import os
import re
import socket
import sys
import threading

import cffi

header, library, directory, name = sys.argv[1:]
ffi = cffi.FFI()
# cffi reads declarations and numbers, and no other lines of the preprocessor.
text = re.sub(r"/\*.*?\*/", "", open(header).read(), flags=re.DOTALL)
lines = [line for line in text.splitlines() if not line.startswith("#") or re.match(r"#define SAMUM_\w+ \d", line)]
lines = [line for line in lines if not line.startswith(('extern "C"', "}")) or line.startswith("};")]
ffi.cdef("typedef unsigned socklen_t; typedef int pid_t; struct sockaddr; " + "\n".join(lines))
samum = ffi.dlopen(library)


def check(errnum):
    if errnum:
        raise OSError(errnum, os.strerror(errnum))


def end(call):
    """Waits until a call has completed."""
    done = ffi.new("struct samum_completion *")
    check(samum.samum_wait_for(queue, call[0], 10000, done))
    check(done.error)
    return done


made, call, handle = ffi.new("samum_queue **"), ffi.new("uint64_t *"), ffi.new("uint64_t *")
check(samum.samum_queue_new(made))
queue = made[0]
check(samum.samum_directory(queue, os.open(directory, os.O_PATH), handle))
check(samum.samum_open(queue, handle[0], name.encode(), samum.SAMUM_NOCACHE, 1, call))
file = end(call)
ours, theirs = socket.socketpair()
received = []
reader = threading.Thread(target=lambda: received.extend(iter(lambda: theirs.recv(65536), b"")))
reader.start()
check(samum.samum_socket(queue, ours.detach(), handle))
memory = ffi.from_buffer(b"file: ")
pieces = ffi.new("struct samum_piece[]", [{"memory": memory, "length": 6}, {"file": file.name, "length": file.bytes}])
check(samum.samum_send(queue, handle[0], pieces, 2, 0, 2, call))
print(end(call).bytes, "bytes sent")
check(samum.samum_shutdown(queue, handle[0]))
reader.join()
room = ffi.new("char[]", file.bytes)
check(samum.samum_read(queue, file.name, 0, room, file.bytes, 3, call))
assert b"".join(received) == b"file: " + ffi.buffer(room, end(call).bytes)[:]
check(samum.samum_queue_free(queue))
