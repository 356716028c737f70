"""What only a source over shm can be told: frames of other transports, descriptors, and attempts to change its arena."""

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct

import wire as w
from receiver_lies import Case, granted, until_served
from shm_lies import MANY
from shm_peers import PAGE, Memory


def read_cases(offer):
    """READ has no place in a conversation over shm."""
    read = w.pack_ranges([(offer.state_id, 0, 0, 6144)])
    def offered(kind, payload):
        def act(r, o):
            r.wire.send(kind, payload)
            return until_served(r)
        return granted(act)
    for kind, payload in ((w.READ, read), (w.WORKER, bytes(8) + b'address'), (w.LANDED, struct.pack('<Q', 1)),
                          (w.ARENA, w.pack_arena([PAGE]))):
        yield Case('%s after the OFFER, over shm' % w.NAMES[kind], offered(kind, payload), ['malformed'])


def descriptor_cases():
    """Descriptors that nobody asked for: the conversation goes on as without them."""
    def sent(make, where):
        def act(r):
            fds = make(r)
            try:
                hello, ask = w.frame(w.HELLO, r.hello.pack()), w.frame(w.ASK, r.ask.pack())
                if where == 'each byte of ASK':
                    r.wire.send_raw(hello)
                    for i in range(0, len(ask), 7):
                        r.wire.send_raw(ask[i:i + 7], fds)
                else:
                    r.wire.send_raw(hello, fds if where == 'HELLO' else ())
                    r.wire.send_raw(ask, fds if where == 'ASK' else ())
            finally:
                for fd in set(fds):
                    if fd != r.wire.sock.fileno():
                        os.close(fd)
            return until_served(r)
        return act
    kinds = {'a pipe': lambda r: list(os.pipe()), '%d memfds' % MANY: lambda r: [Memory(PAGE).fd] * MANY,
             '%d times the connection itself' % MANY: lambda r: [r.wire.sock.fileno()] * MANY,
             'an arena': lambda r: [Memory(1 << 20).fd]}
    for name, make in kinds.items():
        for where in ('HELLO', 'ASK', 'each byte of ASK'):
            yield Case('%s with %s' % (where, name), sent(make, where), ['OFFER'], serves=True)
    def garbage(r):
        memory = Memory(PAGE)
        r.wire.send_raw(b'X' * 4096, [memory.fd] * MANY)
        memory.close()
        return until_served(r)
    yield Case('garbage with %d descriptors' % MANY, garbage, ['malformed'])
    def unread(r):  # Left in the queue of a connection that the worker closes.
        memory = Memory(PAGE)
        for _ in range(100):
            r.wire.send_raw(w.frame(w.HELLO, r.hello.pack(), header_sum=0), [memory.fd] * MANY)
        memory.close()
        return until_served(r)
    yield Case('25300 descriptors behind a bad frame', unread, ['malformed', 'closed'])
    def urgent(r):
        r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()))
        try:
            r.wire.sock.send(b'!', socket.MSG_OOB)
        except OSError:
            pass  # a kernel without them
        r.wire.send_raw(w.frame(w.ASK, r.ask.pack()))
        return until_served(r)
    yield Case('an urgent byte between HELLO and ASK', urgent, serves=True)


def trespasses(check):
    """Attempts to change the arena of a source. Each must fail, so that the honest hand-offs between them succeed.

    check(good, name, text) is told what came of it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    def refused(name, attempt):
        def run(arenas):
            size, fd = arenas[0]
            try:
                attempt(size, fd)
                check(False, name, 'it succeeded')
            except (PermissionError, OSError) as e:
                check(e.errno in (errno.EPERM, errno.EACCES, errno.EBUSY, errno.EBADF), name, 'refused with %s' % e)
        return run
    def reopened(attempt):
        def run(size, fd):
            again = os.open('/proc/self/fd/%d' % fd, os.O_RDWR)
            try:
                attempt(size, again)
            finally:
                os.close(again)
        return run
    def hole(size, fd):
        if libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(PAGE)) != 0:
            raise OSError(ctypes.get_errno(), 'fallocate')
    def protect(size, fd):
        libc.mmap.restype = ctypes.c_void_p
        at = libc.mmap(None, ctypes.c_size_t(PAGE), 1, 1, fd, ctypes.c_long(0))
        failed = libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), 3) != 0
        error = ctypes.get_errno()
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(PAGE))
        if failed:
            raise OSError(error, 'mprotect')
    attempts = {
        'shrink': lambda size, fd: os.ftruncate(fd, size - PAGE),
        'empty': lambda size, fd: os.ftruncate(fd, 0),
        'grow': lambda size, fd: os.ftruncate(fd, size + PAGE),
        'write': lambda size, fd: os.pwrite(fd, b'\0' * PAGE, 0),
        'map for writing': lambda size, fd: mmap.mmap(fd, size),
        'make writable': protect,
        'make a hole': hole,
        'seal against writing': lambda size, fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    }
    for name, attempt in attempts.items():
        yield refused('%s the arena of a source' % name, attempt)
        yield refused('%s the arena of a source, opened anew' % name, reopened(attempt))
