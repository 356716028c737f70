"""What only a receiver over shm can be told: ARENA and its descriptors, addresses, and memory that changes under it."""

import fcntl
import os
import select
import socket
import tempfile

import wire as w
from peers import Lie
from shm_peers import PAGE, SEALS, Memory
from source_lies import edges

MANY = 253  # descriptors that the kernel takes with one message


def says(sizes=lambda m: [m.size], fds=lambda m: [m.fd], count=None, at=0):
    """Says an ARENA of these sizes, with these descriptors on its byte `at`."""
    def arena(wire, memories):
        m = memories[0]
        raw = w.frame(w.ARENA, w.pack_arena(sizes(m), count))
        wire.send_raw(raw[:at])
        wire.send_raw(raw[at:], fds(m))
    return arena


def passes(opened, sizes=lambda m: [m.size]):
    """Says an ARENA with what `opened(wire, memory)` opened: the first descriptor is passed, all are closed."""
    def arena(wire, memories):
        fds = opened(wire, memories[0])
        try:
            wire.send_raw(w.frame(w.ARENA, w.pack_arena(sizes(memories[0]))), fds[:1])
        finally:
            for fd in fds:
                os.close(fd)
    return arena


def other_files():
    """(what, how to open it): descriptors that are no memfd sealed against shrinking."""
    reopen = lambda flags: lambda _, m: [os.open('/proc/self/fd/%d' % m.fd, flags)]
    path = lambda name, flags=os.O_RDONLY: lambda *_: [os.open(name, flags)]
    def file_in(directory):
        def opened(_, m):
            with tempfile.TemporaryFile(dir=directory) as f:
                f.write(bytes(m.size))
                f.flush()
                return [os.dup(f.fileno())]
        return opened
    def memfd(size=lambda m: m.size, **how):
        return lambda _, m: [Memory(size(m), **how).fd]
    def full_pipe(_, m):
        ends = os.pipe()
        os.write(ends[1], bytes(65536))
        return list(ends)
    def pair():
        return [s.detach() for s in socket.socketpair()]
    def an_epoll(*_):
        with select.epoll() as epoll:
            return [os.dup(epoll.fileno())]
    yield 'a pipe', full_pipe
    yield "a pipe's writing end", lambda *_: list(os.pipe())[::-1]
    yield 'a socket', lambda *_: pair()
    yield 'the connection itself', lambda wire, _: [os.dup(wire.sock.fileno())]
    yield '/dev/zero', path('/dev/zero', os.O_RDWR)
    yield '/dev/null', path('/dev/null', os.O_RDWR)
    yield '/dev/urandom', path('/dev/urandom')
    yield 'a directory', path('/')
    yield 'a file of /proc', path('/proc/self/maps')
    yield 'the memory of a process', path('/proc/self/mem')
    yield 'a plain file', file_in(None)
    if os.path.isdir('/dev/shm'):
        yield 'a file of a tmpfs', file_in('/dev/shm')
    yield 'an eventfd', lambda *_: [os.eventfd(0)]
    yield 'an epoll', an_epoll
    yield 'a path', reopen(os.O_PATH)
    yield 'a memfd that takes no seals', memfd(seals=None)
    yield 'a memfd without seals', memfd(seals=0)
    yield 'a memfd sealed against growing only', memfd(seals=fcntl.F_SEAL_GROW)
    yield 'a memfd sealed against writing only', memfd(seals=fcntl.F_SEAL_WRITE)
    yield 'a memfd of no bytes', memfd(size=lambda m: 0)
    yield 'a memfd one page short', memfd(size=lambda m: m.size - PAGE)
    yield 'a memfd one byte short', memfd(size=lambda m: m.size - 1)
    yield 'a memfd one byte longer', memfd(size=lambda m: m.size + 1)


def arena_lies():
    lie = lambda name, arena, expect=('malformed',), **how: Lie('ARENA ' + name, 'ARENA', expect, arena=arena, **how)
    for what, opened in other_files():
        yield lie('with ' + what, passes(opened))
    # Sealed and of the right size, but not to be mapped.
    yield lie('with a memfd for writing only', passes(lambda _, m: [os.open('/proc/self/fd/%d' % m.fd, os.O_WRONLY)]),
              ['malformed', 'peer_unavailable'])
    def huge(_, m):
        fd = os.memfd_create('huge', os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
        os.ftruncate(fd, 2 << 20)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        return [fd]
    yield lie('with huge pages, of which there are none', passes(huge, lambda m: [2 << 20]), (), harmless=True)
    yield lie('without a descriptor', says(fds=lambda m: []))
    for n in (2, 3, 15, 16, 17, 64, MANY):
        yield lie('with %d descriptors' % n, says(fds=lambda m, n=n: [m.fd] * n))
    for n in (2, 15, 16, 17, 4096):
        yield lie('of %d regions with one descriptor' % n, says(sizes=lambda m, n=n: [m.size] * n))
    for n in (17, 18, MANY):
        yield lie('of %d regions, all there' % n, says(lambda m, n=n: [m.size] * n, lambda m, n=n: [m.fd] * n))
    for n in edges(32, 1) + [16, 17]:
        yield lie('.count=%d' % n, says(count=n))
    yield lie('of nothing', says(sizes=lambda m: [], fds=lambda m: []))
    yield lie('of nothing, with a descriptor', says(sizes=lambda m: []))
    for at in (1, 2, 23, 24, 27, 35):
        yield lie('with its descriptor on byte %d' % at, says(at=at))
    for bits in range(10):
        yield lie('.size off by one bit, %d' % bits, says(sizes=lambda m, b=bits: [m.size ^ 1 << 7 * b]))
    for value in (0, 1, PAGE, 2**63 - 1, 2**63, 2**64 - PAGE, 2**64 - 1):
        yield lie('.size=%d' % value, says(sizes=lambda m, v=value: [v]))
    # The second of two is wrong: the first is mapped by then.
    for what, opened in (('/dev/zero', lambda m: os.open('/dev/zero', os.O_RDWR)), ('a bad size', lambda m: os.dup(m.fd))):
        def second(wire, memories, opened=opened):
            fd = opened(memories[0])
            wire.send_raw(w.frame(w.ARENA, w.pack_arena([memories[0].size, PAGE])), [memories[0].fd, fd])
            os.close(fd)
        yield lie('with %s as its second region' % what, second)
    def each_byte(count):
        def arena(wire, memories):
            raw = w.frame(w.ARENA, w.pack_arena([memories[0].size]))
            for i in range(len(raw)):
                wire.send_raw(raw[i:i + 1], [memories[0].fd] * count)
        return arena
    yield lie('with %d descriptors on each byte' % MANY, each_byte(MANY))
    yield lie('twice', lambda wire, ms: [says()(wire, ms), says()(wire, ms)])
    yield lie('with descriptors on bytes that never come whole',
              lambda wire, ms: (wire.send_raw(w.frame(w.ARENA, w.pack_arena([PAGE]))[:20], [ms[0].fd] * 16),
                                wire.sock.shutdown(socket.SHUT_WR)), ['peer_unavailable'])


def arena_truths():
    truth = lambda name, arena: Lie('ARENA ' + name, 'ARENA', arena=arena)
    yield truth('as it should be', says())
    yield truth('for reading only', passes(lambda _, m: [os.open('/proc/self/fd/%d' % m.fd, os.O_RDONLY)]))
    yield truth('of two regions that are one', says(lambda m: [m.size] * 2, lambda m: [m.fd] * 2))
    def and_vast(wire, memories):
        large = Memory(1 << 45)
        sizes, fds = [memories[0].size, large.size], [memories[0].fd, large.fd]
        wire.send_raw(w.frame(w.ARENA, w.pack_arena(sizes)), fds)
        large.close()
    yield truth('with a region of 32 TiB that is one hole', and_vast)
    yield truth('of sixteen regions that are one', says(lambda m: [m.size] * 16, lambda m: [m.fd] * 16))
    def byte_by_byte(more):
        def arena(wire, memories):
            m = memories[0]
            for i, byte in enumerate(w.frame(w.ARENA, w.pack_arena([m.size]))):
                wire.send_raw(bytes([byte]), [m.fd] if i == 0 else [m.fd] * more)
        return arena
    yield truth('byte by byte', byte_by_byte(0))
    yield truth('with %d descriptors on each byte but the first' % MANY, byte_by_byte(MANY))
    def seal_writing(wire, memories):
        fcntl.fcntl(memories[0].fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
        says()(wire, memories)
    yield truth('sealed in every way', seal_writing)


def carried():
    """Descriptors that travel with frames that carry none: what is not asked for is closed by the kernel."""
    for step in ('HELLO', 'BLOCKS', 'OFFER'):
        for name, opened in (('a pipe', lambda: os.pipe()), ('%d memfds' % MANY, lambda: [Memory(PAGE).fd] * MANY)):
            def fds(opened=opened):
                found = opened()
                carried.opened.extend(set(found))
                return found
            yield Lie('%s with %s' % (step, name), step, fds=fds)


carried.opened = []


def close_carried():
    while carried.opened:
        os.close(carried.opened.pop())


def address_lies(bundle, size):
    """Of a placed bundle in a memory of `size` bytes."""
    def lie(name, change, inside, key, **how):
        mismatch = 'block_digest_mismatch' if key >> 32 else 'digest_mismatch'
        return Lie('OFFER ' + name, 'OFFER', [mismatch, 'non_finite'] if inside else ['malformed'], change=change,
                   early=False, **how)
    for i, (key, _, offset, length) in enumerate(bundle.offer.parts):
        for value in (1, 2, 15, 16, 2**31, 2**32 - 1):
            def region(o, i=i, value=value):
                o.parts[i][1] = value
            yield lie('parts[%d].region=%d' % (i, value), region, False, key)
        values = edges(64, offset) + [offset + 64, offset - 64, offset + PAGE, size - length - 1, size - length,
                                      size - length + 1, size - 1, size, size + 1, 2**32, 2**47, 2**63 - length,
                                      2**64 - length, 2**64 - length + 1]
        for value in sorted(set(values)):
            def move(o, i=i, value=value):
                o.parts[i][2] = value
            yield lie('parts[%d].offset=%d' % (i, value), move, value + length <= size, key)
        for j, other in enumerate(bundle.offer.parts):
            if j != i and other[3] == length:
                def same(o, i=i, at=other[2]):
                    o.parts[i][2] = at
                yield lie('parts[%d] at the place of part %d' % (i, j), same, True, key)
    def all_at(at):
        def change(o):
            for part in o.parts:
                part[2] = at
        return change
    for at in (0, PAGE, PAGE + 32):
        yield Lie('OFFER all parts at %d' % at, 'OFFER', ['digest_mismatch', 'block_digest_mismatch', 'non_finite'],
                  change=all_at(at), early=False)
    yield Lie('OFFER all parts at the end', 'OFFER', ['malformed'], change=all_at(size), early=False)


def byte_lies(bundle):
    """The bytes themselves, from the beginning."""
    for name, change in (('zeros', lambda data: bytes(len(data))), ('ones', lambda data: b'\xff' * len(data))):
        yield Lie('memory of ' + name, 'OFFER', ['digest_mismatch', 'block_digest_mismatch', 'non_finite'], early=False,
                  memory={k: change(v) for k, v in bundle.memory.items()})
    offered = {block[0] for record in bundle.early for block in record.blocks}
    for key, data in sorted(bundle.memory.items()):
        for at, bit in ((0, 1), (len(data) // 2, 128), (len(data) - 1, 1)):
            torn = bytearray(data)
            torn[at] ^= bit
            for early in (False, True) if key >> 32 else (False,):
                # What comes early is refused early.
                step = 'BLOCKS' if early and key in offered else 'OFFER'
                yield Lie('memory with bit %d of byte %d of part %x, early %s' % (bit, at, key, early), step, early=early,
                          expect=['block_digest_mismatch' if key >> 32 else 'digest_mismatch', 'non_finite'],
                          memory={**bundle.memory, key: torn})


def flip(where, key, at=1000):
    """Changes a byte of a part where it lies."""
    def meddle(memories):
        region, offset = where[key]
        fd = memories[region].fd
        os.pwrite(fd, bytes([os.pread(fd, 1, offset + at)[0] ^ 64]), offset + at)
    return meddle


def changes(where):
    """Memory that changes after ARENA is said: before blocks are offered, or between them and the offer."""
    block, state = 1 << 32, 1
    yield Lie('a block changes ahead of BLOCKS', 'BLOCKS', ['block_digest_mismatch', 'non_finite'], meddle=flip(where, block))
    yield Lie('a block changes ahead of OFFER, not pulled yet', 'OFFER', ['block_digest_mismatch', 'non_finite'],
              meddle=flip(where, block), early=False)
    yield Lie('a state changes ahead of OFFER', 'OFFER', ['digest_mismatch', 'non_finite'], meddle=flip(where, state))
    def punch(memories):
        for memory in memories:
            memory.punch(0, memory.size)
    yield Lie('all memory becomes a hole ahead of BLOCKS', 'BLOCKS', ['block_digest_mismatch', 'digest_mismatch'], meddle=punch)
    yield Lie('all memory becomes a hole ahead of OFFER', 'OFFER', ['block_digest_mismatch', 'digest_mismatch'], meddle=punch)


def harmless_changes(where):
    """What the receiver does not read any more may change, and what the seal forbids cannot."""
    yield Lie('a block changes that was pulled', 'OFFER', meddle=flip(where, 1 << 32))
    def shrink(memories):
        for size in (0, PAGE, memories[0].size - 1):
            try:
                os.ftruncate(memories[0].fd, size)
                raise AssertionError('a sealed memfd was shrunk')
            except PermissionError:
                pass
    yield Lie('an attempt to shrink ahead of BLOCKS', 'BLOCKS', meddle=shrink)
    yield Lie('an attempt to shrink ahead of OFFER', 'OFFER', meddle=shrink)


def storm(where, parts):
    """Bytes that go back and forth between true and false while they are copied: refused, or true by luck."""
    def run(memories, over):
        low = min(offset for _, offset in where.values())
        high = max(where[key][1] + len(data) for key, data in parts.items())
        true = os.pread(memories[0].fd, high - low, low)
        false = bytes(len(true))
        while not over():
            os.pwrite(memories[0].fd, false, low)
            os.pwrite(memories[0].fd, true, low)
    return Lie('memory that changes all the time', storm=run)


def gaps(pid):
    """Sizes of the holes in a process's address space, largest first."""
    ends = [0]
    sizes = []
    with open('/proc/%d/maps' % pid) as f:
        for line in f:
            begin, end = (int(x, 16) for x in line.split()[0].split('-'))
            if begin < 1 << 47:
                sizes.append(begin - ends[-1])
                ends.append(end)
    sizes.append((1 << 47) - PAGE - ends[-1])
    return sorted((size for size in sizes if size >= 1 << 20), reverse=True)


def vast(pid):
    """An ARENA of sixteen regions as large as the holes in the victim's address space: mapped, nothing is left of it."""
    def arena(wire, memories):
        sizes = [min(size - (size >> 8) - PAGE & -PAGE, 1 << 46) for size in gaps(pid)[:16]]
        held = [Memory(size) for size in sizes]
        wire.send_raw(w.frame(w.ARENA, w.pack_arena(sizes)), [m.fd for m in held])
        for m in held:
            m.close()
    return Lie('ARENA as large as the address space', 'ARENA', arena=arena, harmless=True)
