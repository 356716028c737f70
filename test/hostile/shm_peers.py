"""Both sides of a conversation over shm: a source that passes a memfd, a receiver that maps the source's arena."""

import ctypes
import fcntl
import mmap
import os
import socket
import subprocess
import sys
import threading
import uuid

import wire as w
from peers import BOUNDARY, Receiver, Source, demo_shape

PAGE = 4096
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Memory:
    """A memfd of this peer's. `seals`: None for one that takes no seals at all."""

    def __init__(self, size, seals=SEALS):
        self.size = size
        self.fd = os.memfd_create('hostile', os.MFD_CLOEXEC | (0 if seals is None else os.MFD_ALLOW_SEALING))
        os.ftruncate(self.fd, size)
        if seals:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def write(self, at, data):
        os.pwrite(self.fd, data, at)

    def punch(self, at, size):
        """Makes a hole, which reads as zeros; sealing against shrinking allows it."""
        libc = ctypes.CDLL(None, use_errno=True)
        keep_size, hole = 1, 2
        if libc.fallocate(self.fd, keep_size | hole, ctypes.c_long(at), ctypes.c_long(size)) != 0:
            raise OSError(ctypes.get_errno(), 'fallocate')

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def places(shift=0, region=lambda key: 0):
    """{part key: (region, offset)} from the second page on, `shift` bytes further, and the size of a memory for it."""
    out, at = {}, PAGE
    for key, size in demo_shape().keys(BOUNDARY).items():
        out[key] = (region(key), at + shift)
        at += -(-size // 64) * 64
    return out, -(-(at + shift) // PAGE) * PAGE + PAGE


def fill(memories, parts, where):
    for key, data in parts.items():
        region, offset = where[key]
        memories[region].write(offset, bytes(data))
    return memories


class ShmSource(Source):
    """A Source whose bytes lie in memfds, one a region. Its bundle must be placed."""

    def __init__(self, bundle, digest, seals=SEALS, listen=None):
        self.where = {p[0]: tuple(p[1:3]) for p in bundle.offer.parts}
        self.sizes = [places(shift=PAGE)[1]] * (1 + max(region for region, _ in self.where.values()))
        self.seals, self.listen_as = seals, listen
        self.truth = self._memories(bundle.memory)
        super().__init__(bundle, digest)

    def _memories(self, parts):
        return fill([Memory(size, self.seals) for size in self.sizes], parts, self.where)

    def _listen(self):
        endpoint = 'shm:@hostile-%s' % uuid.uuid4()
        if self.listen_as:
            return self.listen_as(endpoint), endpoint
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(w.unix_address(endpoint))
        server.listen(64)
        return server, endpoint

    def close(self):
        super().close()
        for memory in self.truth:
            memory.close()

    def _open(self, wire, lie):
        # What may be changed is not the memory of the honest runs.
        own = lie.memory or lie.arena or lie.meddle or lie.storm
        memories = self._memories(lie.memory or self.bundle.memory) if own else self.truth
        wire.memories, wire.over, wire.storm = memories, False, None
        if lie.storm:
            wire.storm = threading.Thread(target=lie.storm, args=(memories, lambda: wire.over))
            wire.storm.start()
        if lie.step == 'ARENA' and lie.arena:
            self.told += 1
            lie.arena(wire, memories)
        else:
            self._say(wire, lie, w.ARENA, w.pack_arena([m.size for m in memories]), fds=[m.fd for m in memories])

    def _end(self, wire):
        wire.over = True
        if wire.storm:
            wire.storm.join()
        if wire.memories is not self.truth:
            for memory in wire.memories:
                memory.close()

    def _answer(self, wire, lie, kind, payload):
        if kind in (w.READ, w.WORKER, w.LANDED):
            raise ValueError('%s over shm' % w.NAMES[kind])
        return False


class ShmReceiver(Receiver):
    """A Receiver that copies from the source's arena, read-only."""

    def open(self):
        self.arenas = []
        for size, fd in self.wire.receive_arena():
            with os.fdopen(fd, 'rb') as f:
                assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK, 'an arena that could shrink'
                assert os.fstat(fd).st_size == size, 'an arena of another size'
                self.arenas.append(mmap.mmap(f.fileno(), size, prot=mmap.PROT_READ))

    def pull(self, state_id, parts):
        for key, region, offset, size in parts:
            data = self.arenas[region][offset:offset + size]
            assert len(data) == size, 'part %d leaves its region' % key
            self.memory[key] = data

    def close(self):
        super().close()
        for arena in self.arenas:
            arena.close()


def as_user(uid, what, endpoint):
    """A socket on which another user's process did `what`: 'listen' at the endpoint or 'connect' to it."""
    script = """
import os, socket, sys
out, uid, what, address = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.setgroups([]), os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
address = '\\0' + address[1:]
s.connect(address) if what == 'connect' else (s.bind(address), s.listen(64))
socket.send_fds(out, [b'.'], [s.fileno()])
"""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        address = endpoint.split(':', 1)[1]
        subprocess.run([sys.executable, '-c', script, str(theirs.fileno()), str(uid), what, address],
                       pass_fds=[theirs.fileno()], check=True, timeout=20, cwd='/')
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fds[0])
