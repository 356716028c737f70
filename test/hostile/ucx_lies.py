"""What only the ucx connector can be told: WORKER, messages and LANDED, and strangers at the port that UCX itself opens."""

import os
import socket
import struct
import time

import wire as w
from peers import Lie
from receiver_lies import Case, granted, until_served
from source_lies import edges, opaque
from ucx_peers import PIECE, Endpoint, UcxReceiver, pack_piece

MAGIC = struct.pack('<Q', 0xCAFEBABE12345678)  # how a connection of UCX over tcp begins


# ---- as a source ----------------------------------------------------------------------------------------------------


def piece_lies(bundle):
    def lie(name, change, expect, early=False, **how):
        def apply(pieces):
            told = [list(p) for p in pieces]
            out = change(told)
            return told if out is None else out
        return Lie('PIECE ' + name, 'PIECES', expect, change=apply, early=early, **how)
    def column(at, value):
        def change(pieces):
            pieces[0][at] = value(pieces[0][at]) if callable(value) else value
        return change
    for name, value in (('zero', 0), ('all ones', 2**64 - 1), ('off by one', lambda t: t ^ 1), ('off by a bit', lambda t: t ^ 1 << 63)):
        yield lie('with a token of %s' % name, column(0, value), ['unknown_part'])
    for value in edges(64, 1):
        yield lie('.read=%d' % value, column(1, value), ['unknown_part'])
    for value in (14, 15, 4096, 2**32, 2**63, 2**64 - 1):
        yield lie('.range=%d' % value, column(2, value), ['unknown_part'])
    for value in edges(64, 0) + [PIECE, 2 * PIECE, 2**32 + PIECE, 2**63, 2**64 - PIECE]:
        if value != 0:
            yield lie('.offset=%d' % value, column(3, value), ['short_transfer'])
    for name, change in (('nothing', lambda d: b''), ('a byte less', lambda d: d[:-1]), ('a byte more', lambda d: d + b'\0'),
                         ('half', lambda d: d[:len(d) // 2]), ('a whole piece', lambda d: d.ljust(PIECE, b'\0')[:PIECE])):
        yield lie('with %s of data' % name, column(4, change), ['short_transfer'])
    for size in (0, 1, 8, 31):
        yield lie('cut to %d bytes' % size, lambda ps, n=size: [pack_piece(*ps[0])[:n], *ps[1:]], ['malformed'])
    for size in (32 + PIECE + 1, 1 << 20, 64 << 20):
        yield lie('of %d bytes' % size, lambda ps, n=size: [pack_piece(*ps[0]).ljust(n, b'\0'), *ps[1:]],
                  ['malformed', 'short_transfer', 'peer_unavailable'])
    for early in (False, True):
        yield lie('twice, early %s' % early, lambda ps: ps[:1] + ps, ['unknown_part'], early=early)
        yield lie('left out, early %s' % early, lambda ps: ps[1:], [], early=early, hang_up=True)
        yield lie('none at all, early %s' % early, lambda ps: [], [], early=early, hang_up=True)
    def exchanged(pieces):
        same = [p for p in pieces if len(p[4]) == len(pieces[-1][4])]
        same[0][4], same[1][4] = same[1][4], same[0][4]
    yield lie('exchanged with another', exchanged, ['digest_mismatch', 'block_digest_mismatch'])
    yield lie('all of zeros', lambda ps: [[*p[:4], bytes(len(p[4]))] for p in ps], ['digest_mismatch', 'block_digest_mismatch'])
    yield lie('ahead of a thousand that nobody waits for',
              lambda ps: [pack_piece(1, 1, 0, 0, b'x')] * 1000 + ps, ['unknown_part'])
    yield lie('behind which a thousand come', lambda ps: ps + [pack_piece(1, 1, 0, 0, b'x')] * 1000, [], harmless=True)
    for key, data in sorted(bundle.memory.items()):
        torn = bytearray(data)
        torn[len(torn) // 2] ^= 128
        yield Lie('a bit of part %x over ucx' % key, 'PIECES', change=lambda ps: ps, early=False,
                  memory={**bundle.memory, key: torn},
                  expect=['block_digest_mismatch' if key >> 32 else 'digest_mismatch', 'non_finite'])


def piece_truths():
    truth = lambda name, change: Lie('PIECES ' + name, 'PIECES', change=change)
    yield truth('as they should be', lambda ps: ps)
    yield truth('from the last to the first', lambda ps: ps[::-1])
    yield truth('by turns', lambda ps: ps[::2] + ps[1::2])


def worker_lies():
    """About the answer to WORKER, and frames in the middle of a READ."""
    payloads = {kind: b'' for kind in w.NAMES if kind != w.WORKER}
    payloads[w.ERROR] = w.string(b'no_capacity') + w.string(b'as you wish')
    for kind, payload in payloads.items():
        yield Lie('%s ahead of the answer to WORKER' % w.NAMES[kind], 'WORKER', before=w.frame(kind, payload))
        yield Lie('the answer to WORKER as type %d' % kind, 'WORKER', head={'type': kind})
    for cut in (0, 1, 23):
        yield Lie('the answer to WORKER cut after %d' % cut, 'WORKER', cut=cut)
    yield Lie('the answer to WORKER twice', 'WORKER', ['malformed'], rewrite=lambda raw: raw + raw)
    yield Lie('the answer to WORKER damaged', 'WORKER', ['malformed'], head={'header_sum': 1})
    for kind, payload in payloads.items():
        def frame(raw, kind=kind, payload=payload):
            return w.frame(kind, payload)
        yield Lie('%s in the middle of a READ' % w.NAMES[kind], 'ERROR', rewrite=frame)


# ---- as a receiver --------------------------------------------------------------------------------------------------


def met(act):
    """Runs `act` with an offer in hand and workers that have met."""
    def whole(r, offer):
        r.meet()
        return act(r, offer)
    return granted(whole)


def served(r):
    """What came of a READ: 'DATA' if a message came."""
    r.ucx.receive(r._left)
    return 'DATA'


def worker_cases():
    def say(payload):
        def act(r, o):
            r.wire.send(w.WORKER, payload)
            return until_served(r)
        return granted(act)
    for size in (0, 1, 7, 8, 8 + 16385, 65536):
        yield Case('WORKER of %d bytes' % size, say(bytes(size)), ['malformed', 'closed'] if size > 65535 else ['malformed'])
    def of_version(version):
        def act(r, o):
            r.ucx = Endpoint(r.context)
            address = r.ucx.address()
            r.wire.send(w.WORKER, struct.pack('<Q', r.token) + bytes([address[0] & 0xf0 | version]) + address[1:])
            return until_served(r)
        return granted(act)
    for version in range(2, 16):  # UCX would end the process.
        yield Case('WORKER of version %d' % version, of_version(version), ['malformed'])
    def changed(change):
        def act(r, o):
            r.ucx = Endpoint(r.context)
            r.wire.send(w.WORKER, struct.pack('<Q', r.token) + change(r.ucx.address()))
            return r._progressing(lambda: until_served(r))
        return granted(act)
    one = Endpoint(UcxReceiver.context)
    size = len(one.address())
    one.close()
    for at in range(size):
        free = 1 <= at < 9 or at >= size - 2  # a worker's id, which need not be true, and its port, which may be another's
        for value in (1, 0x80, 0xff):
            def flip(a, at=at, value=value):
                return a[:at] + bytes([a[at] ^ value]) + a[at + 1:]
            yield Case('WORKER.address[%d] ^ %d' % (at, value), changed(flip), [] if free else ['malformed'], serves=free)
    for n in range(1, size):
        yield Case('WORKER.address cut to %d' % n, changed(lambda a, n=n: a[:n]), ['malformed'])
    for more in (b'\0', b'\xff' * 100):
        yield Case('WORKER.address with %d bytes more' % len(more), changed(lambda a, more=more: a + more), ['malformed'])
    def again(r, o):
        r.wire.send(w.WORKER, struct.pack('<Q', r.token) + r.ucx.address())
        return until_served(r)
    yield Case('a second WORKER', met(again), ['malformed'])
    def early(r, o):
        r.wire.send(w.READ, w.pack_ranges([(o.state_id, 0, 0, 6144)]))
        return until_served(r)
    yield Case('READ before WORKER', granted(early), ['malformed'])
    def gone(r, o):
        endpoint = Endpoint(r.context)
        address = endpoint.address()
        endpoint.close()
        r.wire.send(w.WORKER, struct.pack('<Q', r.token) + address)
        said = until_served(r)  # It may be answered before the way there has been tried.
        if said == 'WORKER':
            r.wire.send(w.READ, w.pack_ranges([(o.state_id, 0, 0, 6144)]))
            said = until_served(r)
        return said
    yield Case('WORKER of one that is gone', granted(gone), ['peer_unavailable', 'closed'])


def read_cases(bundle):
    state_id = bundle.offer.state_id
    def read(make):
        def act(r, o):
            r.wire.send(w.READ, make(o))
            return served(r)
        return met(act)
    one = lambda **lie: read(lambda o: w.pack_ranges([(lie.get('state_id', o.state_id), lie.get('key', 0),
                                                       lie.get('offset', 0), lie.get('size', 6144))], lie.get('count')))
    for value in opaque(state_id)[:3]:
        yield Case('READ.state_id=%s over ucx' % value.hex(), one(state_id=value), ['unknown_part', 'lease_expired'])
    for key in (8, 2**32 - 1, 2**32 + 6, 2**64 - 1):
        yield Case('READ.key=%d over ucx' % key, one(key=key), ['unknown_part'])
    for offset in (1, 6144, 2**63, 2**64 - 6144, 2**64 - 1):
        yield Case('READ.offset=%d over ucx' % offset, one(offset=offset), ['malformed'])
    for size in (0, 6145, 2**32, 2**64 - 1):
        yield Case('READ.bytes=%d over ucx' % size, one(size=size), ['malformed'])
    for count in (0, 2, 4096, 4097, 2**32 - 1):
        yield Case('READ.count=%d over ucx' % count, one(count=count), ['malformed'])

    def landed(number, raw=None):
        def act(r, o):
            r.ask_for(o.state_id, [[0, 0, 0, 6144]])
            r.ucx.receive(r._left)
            r.wire.send(w.LANDED, struct.pack('<Q', number) if raw is None else raw)
            return until_served(r)
        return met(act)
    for value in edges(64, 1):
        yield Case('LANDED %d of READ 1' % value, landed(value), ['malformed'])
    for raw in (b'', b'\1', bytes(7), bytes(9)):
        yield Case('LANDED of %d bytes' % len(raw), landed(0, raw), ['malformed'])
    def unasked(r, o):
        r.wire.send(w.LANDED, struct.pack('<Q', 0))
        return until_served(r)
    yield Case('LANDED without a READ', met(unasked), ['malformed'])
    for kind in w.NAMES:
        if kind in (w.LANDED, w.ERROR):
            continue
        def instead(r, o, kind=kind):
            r.ask_for(o.state_id, [[0, 0, 0, 6144]])
            r.ucx.receive(r._left)
            r.wire.send(kind, w.pack_ranges([(o.state_id, 0, 0, 6144)]) if kind == w.READ else b'')
            return until_served(r)
        yield Case('%s instead of LANDED' % w.NAMES[kind], met(instead), ['malformed'])
    def leaves(r, o):
        r.ask_for(o.state_id, [[1, 0, 0, 98304]] * 1000)
        r.ucx.receive(r._left)
        raise w.Closed()
    yield Case('READ of 98 MB, one message taken, and gone', met(leaves), ['closed'])
    def worker_leaves(r, o):
        r.ask_for(o.state_id, [[1, 0, 0, 98304]] * 1000)
        r.ucx.receive(r._left)
        r.ucx.close()
        return until_served(r)
    yield Case('READ of 98 MB, one message taken, the worker gone', met(worker_leaves), ['peer_unavailable', 'closed'])


def honest_cases():
    """What the cases above go on from, and must succeed."""
    def whole(r, o):
        r.ask_for(o.state_id, [[0, 0, 0, 6144]])
        r.take([[0, 0, 0, 6144]])
        r.wire.send(w.LANDED, struct.pack('<Q', 1))
        r.ask_for(o.state_id, [[1, 0, 0, 98304]])
        r.take([[1, 0, 0, 98304]])
        r.wire.send(w.LANDED, struct.pack('<Q', 2))
        return 'DATA'
    yield Case('two READs over ucx', met(whole), ['DATA'], serves=True)


def silent_cases():
    """Each costs a lease."""
    def never(r, o):
        r.ask_for(o.state_id, [[1, 0, 0, 98304]] * 1000)
        return until_served(r)
    yield Case('READ of 98 MB over ucx, and no reading', met(never))
    def unacknowledged(r, o):
        r.ask_for(o.state_id, [[0, 0, 0, 6144]])
        r.ucx.receive(r._left)
        return until_served(r)
    yield Case('no LANDED', met(unacknowledged))
    def met_only(r, o):
        return until_served(r)
    yield Case('WORKER, then nothing', met(met_only))


# ---- at UCX's own port ----------------------------------------------------------------------------------------------


def sockets(worker):
    """(state, local port) of each TCP socket of the process."""
    inodes = set()
    for fd in os.listdir('/proc/%d/fd' % worker.process.pid):
        try:
            target = os.readlink('/proc/%d/fd/%s' % (worker.process.pid, fd))
        except OSError:
            continue
        if target.startswith('socket:['):
            inodes.add(target[8:-1])
    for table in ('tcp', 'tcp6'):
        if os.path.exists('/proc/net/' + table):
            with open('/proc/net/' + table) as f:
                for fields in (line.split() for line in f.readlines()[1:]):
                    if fields[9] in inodes:
                        yield fields[3], int(fields[1].rsplit(':', 1)[1], 16)


def ports(worker):
    """Ports that the process listens on, other than those it says."""
    known = {worker.port, int(worker.endpoint.rsplit(':', 1)[1])}
    return sorted({port for state, port in sockets(worker) if state == '0A'} - known)


def left_behind(worker):
    """Connections to its ports whose other side is gone."""
    listening = {port for state, port in sockets(worker) if state == '0A'}
    return sum(state == '08' and port in listening for state, port in sockets(worker))


def strangers(port):
    """(name, what it does): connections to UCX's port that never finish its greeting. `port`: gives one."""
    def connection():
        return socket.create_connection(('127.0.0.1', port()), 5)
    def says(data):
        def run():
            with connection() as c:
                c.sendall(data)
                time.sleep(0.01)
        return run
    def slowly(data):
        def run():
            with connection() as c:
                for i in range(len(data)):
                    c.sendall(data[i:i + 1])
                    time.sleep(0.01)
        return run
    def reset():
        c = connection()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        c.close()
    yield 'nothing', says(b'')
    yield 'a reset', reset
    for n in range(1, 8):
        yield '%d bytes of the magic' % n, says(MAGIC[:n])
    yield 'the magic a byte at a time, wrong at the end', slowly(MAGIC[:7] + b'\0')
    yield 'zeros', says(bytes(65536))
    yield 'random bytes', says(os.urandom(65536))
    yield 'a frame of the hand-off', says(w.frame(w.HELLO, bytes(200)))
    yield 'HTTP', says(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    yield 'the magic and nothing else', says(MAGIC)
    yield 'the magic and half a header', says(MAGIC + b'\x20\x10')
