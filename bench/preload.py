#!/usr/bin/env python3
"""Download many cold files from a disk without a limit: nginx as it is, with `aio threads`, and beneath `samum preload`, in one run.

    bench/preload.py [--files 200] [--bytes 4194304] [--clients 16] [--rounds 5] [--servers nginx,nginx-aio,nginx-preload] [--quick]

Each round evicts all files (fsync, POSIX_FADV_DONTNEED) before each server's turn; then the clients fetch them, each file once.
Server on core 0, clients on core 1; medians, and the fastest and slowest round. CPU is that of all threads of the server.
"""
import argparse, os, shutil, socket, statistics, subprocess, sys, tempfile, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import league

def evict(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)

def fetch(port, names, size):
    """Fetch files over one connection; whoever gets another count of bytes is wrong."""
    s = socket.create_connection(('127.0.0.1', port), 60); buf = bytearray(1 << 20)
    for name in names:
        s.sendall(f'GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n'.encode()); head = b''
        while b'\r\n\r\n' not in head: head += s.recv(65536)
        left = size - (len(head) - head.index(b'\r\n\r\n') - 4)
        while left > 0:
            k = s.recv_into(buf)
            if not k: raise SystemExit(f'{name} was cut')
            left -= k
        if left: raise SystemExit(f'{name} is too long')

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--files', type=int, default=200); ap.add_argument('--bytes', type=int, default=4 << 20); ap.add_argument('--clients', type=int, default=16)
    ap.add_argument('--rounds', type=int, default=5); ap.add_argument('--servers', default='nginx,nginx-aio,nginx-preload'); ap.add_argument('--quick', action='store_true', help='20 files, one round')
    a = ap.parse_args()
    if a.quick: a.files, a.rounds = 20, 1
    root = tempfile.mkdtemp(prefix='preload-root-', dir='/var/tmp'); os.chmod(root, 0o755)
    names = [f'c{i}' for i in range(a.files)]; paths = [f'{root}/{n}' for n in names]; league.THROTTLE = None; res = {}
    for path in paths: open(path, 'wb').write(os.urandom(a.bytes))
    os.sched_setaffinity(0, {1})
    servers = league.start(a.servers.split(','), root, {})
    try:
        for _ in range(a.rounds):
            for x in servers:
                evict(paths); c, t = x.cpu(), time.time()
                threads = [threading.Thread(target=fetch, args=(x.port, names[i::a.clients], a.bytes)) for i in range(a.clients)]
                [t_.start() for t_ in threads]; [t_.join() for t_ in threads]
                res.setdefault(x.name, []).append((a.files * a.bytes / (time.time() - t) / 1e6, (x.cpu() - c) * 1e6 / a.files))
    finally:
        [x.stop() for x in servers]; shutil.rmtree(root, True)
    print(f'| server | cold MB/s ({a.files} files of {a.bytes} B) | slowest to fastest round | server CPU, us/file |\n|---|---|---|---|')
    for name, rows in res.items():
        speeds = [r[0] for r in rows]
        print(f'| {name} | {statistics.median(speeds):.0f} | {min(speeds):.0f} to {max(speeds):.0f} | {statistics.median(r[1] for r in rows):.0f} |')

if __name__ == '__main__': main()
