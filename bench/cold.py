#!/usr/bin/env python3
"""Download a file that is not in memory: speed against fio, CPU against nginx, in one run.

    bench/cold.py [--bytes 1073741824] [--rounds 3] [--servers nginx,samum,samum-epoll] [--quick]

The file is evicted before each download (fsync, POSIX_FADV_DONTNEED). Server on core 0, client on core 1; the servers and fio take
turns; medians. CPU is that of all threads of the server, the kernel's workers on its behalf included.
fio reads the same file in blocks of 256 KiB through the page cache, as samum's disk path does: its speed is the bar.
Servers and fio that are not installed are left out, and named.
"""
import argparse, glob, json, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time

NGINX = '''worker_processes 1; daemon off; pid {tmp}/pid; error_log {tmp}/err; {user}
events {{ worker_connections 1000; }}
http {{ access_log off; sendfile on; tcp_nopush on; server {{ listen 127.0.0.1:{port}; root {root}; }} }}'''
SAMUM = os.environ.get('SAMUM_BIN', 'target/release/samum')

def command(name, root, port, tmp):
    if name.startswith('nginx'):
        user = 'user root;' if os.getuid() == 0 else ''
        open(f'{tmp}/conf', 'w').write(NGINX.format(root=root, port=port, tmp=tmp, user=user))
        return ['nginx', '-c', f'{tmp}/conf']
    extra = ['--driver', 'epoll'] if 'epoll' in name else []
    extra += ['--cache', 'always'] if 'always' in name else ['--cache', 'never'] if 'never' in name else []
    return [SAMUM, 'serve', root, '--listen', f'127.0.0.1:{port}', '--threads', '1'] + extra

def cpu(pid):
    """CPU seconds of a process, its children and all their threads."""
    total, todo = 0, [pid]
    while todo:
        p = todo.pop()
        for f in glob.glob(f'/proc/{p}/task/*/children'):
            try: todo += map(int, open(f).read().split())
            except OSError: pass
        for f in glob.glob(f'/proc/{p}/task/*/schedstat'):
            try: total += int(open(f).read().split()[0])
            except (OSError, IndexError): pass
    return total / 1e9

def evict(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)

def download(port, size):
    """Seconds to receive the whole body."""
    s = socket.create_connection(('127.0.0.1', port), 60); buf = bytearray(1 << 20); t = time.time()
    s.sendall(b'GET /cold HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'); n = 0
    while True:
        k = s.recv_into(buf)
        if not k: break
        n += k
    if n < size: raise SystemExit(f'only {n} of {size} bytes came')
    return time.time() - t

def fio(path):
    """Bytes per second of a sequential read."""
    out = subprocess.run(['taskset', '-c', '0', 'fio', '--name=read', f'--filename={path}', '--rw=read', '--bs=256k', '--invalidate=1', '--output-format=json'], capture_output=True, text=True).stdout
    return json.loads(out[out.index('{'):])['jobs'][0]['read']['bw_bytes']

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--bytes', type=int, default=1 << 30); ap.add_argument('--rounds', type=int, default=3)
    ap.add_argument('--servers', default='nginx,samum,samum-epoll'); ap.add_argument('--quick', action='store_true', help='64 MiB, one round'); ap.add_argument('--root')
    a = ap.parse_args()
    if a.quick: a.bytes, a.rounds = 64 << 20, 1
    root = a.root or tempfile.mkdtemp(prefix='cold-', dir='/var/tmp'); os.chmod(root, 0o755); path = f'{root}/cold'; tmps, procs, res = [], {}, {}
    with open(path, 'wb') as f:
        for _ in range(a.bytes >> 20): f.write(os.urandom(1 << 20))
    os.sched_setaffinity(0, {1})
    try:
        for name in a.servers.split(','):
            s = socket.socket(); s.bind(('127.0.0.1', 0)); port = s.getsockname()[1]; s.close()
            tmp = tempfile.mkdtemp(prefix='cold-'); tmps.append(tmp); cmd = command(name, root, port, tmp)
            if not (shutil.which(cmd[0]) or os.path.exists(cmd[0])): print(f'# {name} left out: {cmd[0]} is not installed', file=sys.stderr); continue
            p = subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, {0}))
            procs[name] = (p, port)
            for _ in range(50):
                try: socket.create_connection(('127.0.0.1', port), 1).close(); break
                except OSError: time.sleep(0.1)
        for _ in range(a.rounds):
            if shutil.which('fio'): evict(path); res.setdefault('fio', []).append((fio(path), float('nan')))
            for name, (p, port) in procs.items():
                evict(path); c = cpu(p.pid); t = download(port, a.bytes); res.setdefault(name, []).append((a.bytes / t, cpu(p.pid) - c))
    finally:
        for p, _ in procs.values():
            try: os.killpg(p.pid, signal.SIGTERM)
            except ProcessLookupError: pass
            p.wait()
        for t in tmps: shutil.rmtree(t, True)
        if not a.root: shutil.rmtree(root, True)
    med = lambda name, k: statistics.median(r[k] for r in res[name])
    base, ng = (med('fio', 0) if 'fio' in res else float('nan')), (med('nginx', 1) if 'nginx' in res else float('nan'))
    print('| reader | MB/s | against fio | CPU, ms per GiB | against nginx |\n|---|---|---|---|---|')
    for name in res:
        c = med(name, 1)
        print(f'| {name} | {med(name, 0) / 1e6:.0f} | {med(name, 0) / base:.2f} | {c * 1e3 * (1 << 30) / a.bytes:.0f} | {c / ng:.2f} |')

if __name__ == '__main__': main()
