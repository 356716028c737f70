"""The lies of a malicious receiver to a real source: one per case, about every field it may send.

A case is (name, reasons the documents name or (), what to do with a fresh Receiver). What it does returns the frame that
it was served with in the end: 'OFFER', 'DATA', 'JOINED', or raises w.Refused or w.Closed. `serves`: the source may serve.
"""

import os
import struct
import time

import wire as w
from source_lies import KNOWN_REASONS, edges, opaque, with_payload

CLOSE = ('closed',)


def refused(size):
    """What a frame of this size gets. One that its header alone condemns is not read: whoever is still sending it
    may find the connection closed before it sees the answer."""
    return ['malformed', 'closed'] if size >= 65536 else ['malformed']


class Case:
    def __init__(self, name, act, expect=(), serves=False):
        self.name, self.act, self.expect, self.serves = name, act, set(expect), serves


def until_served(r, ignore=(w.HELLO, w.BLOCKS)):
    """What the source says in the end; BLOCKS are answered with NEXT."""
    while True:
        kind, payload = r.wire.receive()
        if kind == w.ERROR:
            raise w.Refused(*w.parse_error(payload))
        if kind == w.BLOCKS:
            r.wire.send(w.NEXT)
        if kind not in ignore:
            return w.NAMES.get(kind, kind)


def greet_with(change):
    def act(r):
        change(r)
        r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()) + w.frame(w.ASK, r.ask.pack()))
        return until_served(r)
    return act


def set_on(path, value):
    def change(r):
        *way, name = path.split('.')
        for step in way:
            r = getattr(r, step)
        setattr(r, name, value)
    return greet_with(change)


def hello_cases(hello):
    expect = {'version': ['protocol_version'], 'model': ['model_mismatch'], 'layout': ['layout_mismatch'],
              'algorithm': ['digest_algorithm'], 'probe': ['digest_algorithm']}
    forms = dict(w.Hello.FIELDS)
    for name, form in forms.items():
        truth = getattr(hello, name)
        values = opaque(truth) if isinstance(truth, bytes) else edges(8 * struct.calcsize('<' + form), truth)
        for value in values:
            told = value.hex() if isinstance(value, bytes) else value
            yield Case('HELLO.%s=%s' % (name, told), set_on('hello.' + name, value), expect.get(name, ()),
                       serves=name in ('node', 'epoch'))
    for size in (0, 1024, 1025, 65536, 1 << 20):
        yield Case('HELLO.summary of %d' % size, set_on('hello.summary', b's' * size),
                   refused(size) if size > 1024 else (), serves=size <= 1024)
    yield Case('HELLO.summary not text', set_on('hello.summary', b'\0\xff\n"\\%s%n'), serves=True)


def field_cases(sample):
    """About the fields of both records that a receiver sends; `sample`: a Receiver, whose records they are."""
    yield from hello_cases(sample.hello)
    yield from ask_cases(sample.ask)


def ask_cases(ask):
    for value in edges(64, ask.attempt):
        yield Case('ASK.attempt=%d' % value, set_on('ask.attempt', value), serves=True)
    for name, reason in (('model', 'model_mismatch'), ('layout', 'layout_mismatch'), ('scope', ''),
                         ('prefix', 'identity_mismatch')):
        for value in opaque(getattr(ask.content, name)):
            reasons = [reason] if reason else ['scope_mismatch', 'identity_mismatch']
            yield Case('ASK.%s=%s' % (name, value.hex()), set_on('ask.content.' + name, value), reasons)
    for value in edges(64, ask.boundary) + [16, 80, 95, 97, 112, 1048576, 1048592]:
        yield Case('ASK.boundary=%d' % value, set_on('ask.boundary', value))
    for value in edges(32, ask.count) + [80, 112, 1048576]:
        yield Case('ASK.count=%d' % value, set_on('ask.count', value))
    for at in (0, 47, 95):
        for value in (0, 1535, 1536, 2**31 - 1, 2**31, 2**32 - 1, ask.tokens[at] ^ 1):
            tokens = ask.tokens[:at] + [value] + ask.tokens[at + 1:]
            yield Case('ASK.tokens[%d]=%d' % (at, value), set_on('ask.tokens', tokens), ['identity_mismatch', 'malformed'])
    def consistent(tokens):
        def change(r):
            r.ask.tokens, r.ask.boundary, r.ask.count = tokens, len(tokens), len(tokens)
            content = w.Content.of(r.hello.model, r.hello.layout, b'', tokens)
            r.ask.content = content
        return greet_with(change)
    for at in (0, 95):
        for value in (1536, 2**31 - 1, 2**31, 2**32 - 1):
            yield Case('ASK for token %d at %d, identity true' % (value, at),
                       consistent(ask.tokens[:at] + [value] + ask.tokens[at + 1:]), ['malformed'])
    for boundary in (32784, 1048576):
        yield Case('ASK for %d tokens, identity true, deadline far' % boundary,
                   greet_far(consistent, boundary), ['no_capacity', 'closed'])  # closed: 4 MB took too long to come
    yield Case('ASK for nothing, identity true', consistent([]))
    yield Case('ASK for 15 tokens, identity true', consistent(ask.tokens[:15]))
    yield Case('ASK for 1048592 tokens, identity true', consistent([7] * 1048592))
    for value in (0, 1, 2**31, 2**63, 2**64 - 1):
        yield Case('ASK.wait_ms=%d' % value, set_on('ask.wait_ms', value), serves=True)
    for size in (1024, 1025, 1 << 20):
        yield Case('ASK.label of %d' % size, set_on('ask.label', b'l' * size), serves=size <= 1024)
    yield Case('ASK.label not text', set_on('ask.label', b'\0\n\x1b[2J"%n'), serves=True)
    for value in (2, 128, 255):
        yield Case('ASK.blocks=%d' % value, set_on('ask.blocks', value), ['malformed'])
        yield Case('ASK.hint_flag=%d' % value, set_on('ask.hint_flag', value), ['malformed'])
    for value in opaque(b'\1' * 16):
        yield Case('ASK.join_key=%s' % value.hex(), set_on('ask.join_key', value), serves=True)
    def hint(boundary, endpoint):
        def change(r):
            r.ask.hint_flag, r.ask.hint_boundary, r.ask.hint_endpoint = 1, boundary, endpoint
        return greet_with(change)
    for boundary in (0, 1, 15, 17, 96, 112, 2**32, 2**64 - 1):
        yield Case('ASK.hint at %d' % boundary, hint(boundary, b'tcp:127.0.0.1:1'))
    for endpoint in (b'', b'e' * 1025, b'e' * (1 << 20)):
        yield Case('ASK.hint endpoint of %d' % len(endpoint), hint(80, endpoint))
    for endpoint in (b'tcp:127.0.0.1:1', b'shm:@\0', b'tcp:', b'ucx:../..', b'e' * 1024, b'\xff%n\n'):
        yield Case('ASK.hint to %r' % endpoint[:16], hint(80, endpoint), serves=True)


def greet_far(consistent, boundary):
    def act(r):
        r.ask.wait_ms = 2**64 - 1
        return consistent([7] * boundary)(r)
    return act


def record_cases(hello, ask):
    """Every byte of ASK in a few places, its end, and the frame around it."""
    def raw_ask(change):
        def act(r):
            r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()) + change(w.frame(w.ASK, r.ask.pack())))
            r.wire.sock.shutdown(1)
            return until_served(r)
        return act
    def raw_hello(change):
        def act(r):
            r.wire.send_raw(change(w.frame(w.HELLO, r.hello.pack())))
            r.wire.sock.shutdown(1)
            return until_served(r, ignore=(w.BLOCKS,))
        return act
    for step, act, payload in (('HELLO', raw_hello, hello.pack()), ('ASK', raw_ask, ask.pack())):
        size, kind = len(payload), getattr(w, step)
        for keep in sorted({0, 1, size // 2, size - 1} | set(range(1, size, max(1, size // 24)))):
            yield Case('%s payload ends at %d' % (step, keep), act(with_payload(lambda p, n=keep: p[:n])))
        for more in (1, 1 << 20):
            yield Case('%s with %d bytes more' % (step, more), act(with_payload(lambda p, n=more: p + bytes(n))))
        for cut in (0, 1, 23, 24, 25, 23 + size):
            yield Case('%s cut after %d' % (step, cut), act(lambda raw, n=cut: raw[:n]))
        lies = [{'flags': 1}, {'magic': b'BTN2'}, {'payload_sum': 0}, {'header_sum': 0}]
        lies += [{'length': n} for n in (0, size - 1, size + 1, 67108864, 67108865, 2**31, 2**32 - 1)]
        lies += [{'type': n} for n in [0, 21, 65535] + [k for k in w.NAMES if k != kind]]
        for head in lies:
            yield Case('%s frame with %s' % (step, head),
                       act(lambda raw, h=head, k=kind: w.frame(k, raw[24:], **h)))
        yield Case('%s of 64 MiB that come' % step, act(with_payload(lambda p: p + bytes(67108864 - len(p)))))


def granted(act):
    """Runs `act` with an offer in hand, which nothing of was read yet."""
    def whole(r):
        r.greet()
        return act(r, r.await_offer(blocks=False))
    return whole


def read_cases(bundle):
    offer = bundle.offer
    def read(make):
        def act(r, o):
            r.wire.send(w.READ, make(o))
            kind, _ = _next(r)
            return kind
        return granted(act)
    one = lambda **lie: read(lambda o: w.pack_ranges([(lie.get('state_id', o.state_id), lie.get('key', 0),
                                                       lie.get('offset', 0), lie.get('size', 6144))],
                                                     lie.get('count')))
    for value in opaque(offer.state_id):
        yield Case('READ.state_id=%s' % value.hex(), one(state_id=value), ['unknown_part', 'lease_expired'])
    for key in (8, 9, 2**32 - 1, 2**32 + 6, 2**33, 2**63, 2**64 - 1):
        yield Case('READ.key=%d' % key, one(key=key), ['unknown_part'])
    for offset in (1, 6143, 6144, 6145, 2**31, 2**63, 2**64 - 6144, 2**64 - 1):
        yield Case('READ.offset=%d' % offset, one(offset=offset), ['malformed'])
    for size in (0, 6145, 98304, 2**32, 2**63, 2**64 - 1):
        yield Case('READ.bytes=%d' % size, one(size=size), ['malformed'])
    yield Case('READ.offset and bytes that wrap', one(offset=2**63, size=2**63), ['malformed'])
    for count in (0, 2, 4096, 4097, 2**31, 2**32 - 1):
        yield Case('READ.count=%d' % count, one(count=count), ['malformed'])
    for payload in (b'', b'\1', struct.pack('<I', 1) + bytes(39), struct.pack('<I', 1) + bytes(41)):
        yield Case('READ payload of %d' % len(payload), read(lambda o, p=payload: p), ['malformed'])
    yield Case('READ of 4097 ranges', read(lambda o: w.pack_ranges([(o.state_id, 0, 0, 1)] * 4097)), ['malformed'])

    def greedy(r, o):  # 400 MB asked with 160 KB, and never read: the source has to block, not to buffer.
        r.wire.send(w.READ, w.pack_ranges([(o.state_id, 1, 0, 98304)] * 4096))
        time.sleep(0.3)
        return 'DATA'
    yield Case('READ of the same part 4096 times, and no reading', granted(greedy), serves=True)

    def after_release(r, o):
        r.wire.send_raw(w.frame(w.RELEASE) + w.frame(w.READ, w.pack_ranges([(o.state_id, 0, 0, 6144)])))
        return until_served(r)
    yield Case('READ after RELEASE', granted(after_release), ['lease_expired', 'unknown_part', 'closed'])

    def others(r, o):  # What was granted to one connection is not granted to another.
        r2 = r.again()
        r2.greet()
        r2.await_offer(blocks=False)
        r2.wire.send(w.READ, w.pack_ranges([(o.state_id, 0, 0, 6144)]))
        kind, _ = _next(r2)
        r2.wire.close()
        return kind
    yield Case("READ of another connection's bundle", granted(others), ['unknown_part'])

    def early(r):
        r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()) + w.frame(w.READ, w.pack_ranges([(offer.state_id, 0, 0, 6144)])))
        return until_served(r)
    yield Case('READ before ASK', early)


def _next(r):
    kind, payload = r.wire.receive()
    if kind == w.ERROR:
        raise w.Refused(*w.parse_error(payload))
    return w.NAMES.get(kind, kind), payload


def order_cases(hello, ask):
    payloads = {kind: b'' for kind in w.NAMES}
    payloads.update({w.ERROR: w.string(b'peer_error') + w.string(b'no'), w.HELLO: hello.pack(), w.ASK: ask.pack(),
                     w.ARENA: struct.pack('<IQ', 1, 4096), w.LANDED: bytes(8), w.JOIN: bytes(16),
                     w.READ: w.pack_ranges([(bytes(16), 0, 0, 1)]), w.DATA: w.pack_ranges([(bytes(16), 0, 0, 1)])})
    for kind, payload in payloads.items():
        name, extra = w.NAMES[kind], w.frame(kind, payload)
        def instead(r, extra=extra):
            r.wire.send_raw(extra)
            return until_served(r)
        def between(r, extra=extra):
            r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()) + extra + w.frame(w.ASK, r.ask.pack()))
            return until_served(r)
        def computing(r, extra=extra):  # It is not the receiver's turn.
            r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()) + w.frame(w.ASK, r.ask.pack()) + extra)
            return until_served(r)
        def offered(r, o, extra=extra):
            r.wire.send_raw(extra)
            r.wire.sock.shutdown(1)
            return until_served(r)
        if kind != w.HELLO:
            yield Case('%s first of all' % name, instead)
        if kind != w.ASK:
            yield Case('%s between HELLO and ASK' % name, between)
        yield Case('%s while it computes' % name, computing, serves=True)
        yield Case('%s after the OFFER' % name, granted(offered))
    def flood(r):
        r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()) + w.frame(w.NEXT) * 20000)
        return until_served(r)
    yield Case('20000 NEXT without ASK', flood)
    def asks(r):
        r.wire.send_raw(w.frame(w.HELLO, r.hello.pack()) + w.frame(w.ASK, r.ask.pack()) * 200)
        return until_served(r)
    yield Case('200 ASKs at once', asks, serves=True)
    def random_bytes(r):
        r.wire.send_raw(os.urandom(1 << 20))
        return until_served(r)
    yield Case('1 MiB of random bytes', random_bytes)
    for reason in KNOWN_REASONS + ['', 'unheard_of', '"} 1\nbaton:forged{x="', 'r' * 5000]:
        def error(r, o, reason=reason):
            r.wire.send(w.ERROR, w.string(reason.encode()) + w.string(b'\0\x1b[2J%n'))
            return until_served(r)
        yield Case('ERROR %r after the OFFER' % reason[:16], granted(error))


def join_cases():
    key = os.urandom(16)
    def joined(change, payload=None):
        def act(r):
            r.ask.join_key = key
            r.greet()
            offer = r.await_offer(blocks=False)
            r2 = r.again()
            change(r2)
            r2.wire.send_raw(w.frame(w.HELLO, r2.hello.pack()) +
                             w.frame(w.JOIN, key if payload is None else payload))
            try:
                r2.wire.expect(w.HELLO)
                r2.wire.expect(w.JOINED)
                r2.pull(offer.state_id, [p for p in offer.parts if p[0] in (0, 1)])
                return 'DATA'
            finally:
                r2.wire.close()
        return act
    yield Case('JOIN as it should be', joined(lambda r: None), serves=True)
    yield Case('JOIN from another node', joined(lambda r: setattr(r.hello, 'node', bytes(16))), serves=True)
    for size in (0, 1, 15, 17, 1 << 20):
        yield Case('JOIN of %d bytes' % size, joined(lambda r: None, bytes(size)), refused(size))
    yield Case('JOIN with another layout', joined(lambda r: setattr(r.hello, 'layout', bytes(32))), ['layout_mismatch'])
    def zero(r):
        r.greet()
        r.await_offer(blocks=False)
        r2 = r.again()
        r2.wire.send_raw(w.frame(w.HELLO, r2.hello.pack()) + w.frame(w.JOIN, bytes(16)))
        try:
            return until_served(r2)
        finally:
            r2.wire.close()
    yield Case('JOIN with the zero key of an ask that wants none', zero)
    def twice(r):
        r.ask.join_key = key
        r.greet()
        r.await_offer(blocks=False)
        r2 = r.again()
        r2.ask.join_key = key
        r2.greet()
        try:
            return until_served(r2)
        finally:
            r2.wire.close()
    yield Case('two ASKs with one join key', twice, serves=True)


def silent_cases():
    """Each costs the source's patience: run side by side, and an honest peer must be served meanwhile."""
    key = os.urandom(16)
    def say(raw):
        def act(r):
            r.wire.send_raw(raw(r))
            return until_served(r)
        return act
    def drip(raw):
        def act(r):
            for byte in raw(r):
                r.wire.send_raw(bytes([byte]))
                time.sleep(0.05)
            return until_served(r)
        return act
    hello = lambda r: w.frame(w.HELLO, r.hello.pack())
    yield Case('nothing', say(lambda r: b''))
    yield Case('half a frame header', say(lambda r: hello(r)[:12]))
    yield Case('half a HELLO', say(lambda r: hello(r)[:60]))
    yield Case('HELLO, then nothing', say(hello))
    yield Case('HELLO, half an ASK', say(lambda r: hello(r) + w.frame(w.ASK, r.ask.pack())[:200]))
    yield Case('a length that never comes', say(lambda r: hello(r) + w.frame(w.ASK, b'', length=4000000)))
    yield Case('HELLO a byte at a time', drip(hello))
    for value in opaque(key):
        yield Case('JOIN with key %s' % value.hex(), say(lambda r, v=value: hello(r) + w.frame(w.JOIN, v)))
    def silent_after_offer(r):
        r.greet()
        r.await_offer(blocks=False)
        return until_served(r)
    yield Case('OFFER, then nothing', silent_after_offer)
    def stuck(r):
        r.greet()
        o = r.await_offer(blocks=False)
        r.wire.send(w.READ, w.pack_ranges([(o.state_id, 1, 0, 98304)] * 4096))
        time.sleep(4)
        raise w.Closed()
    yield Case('READ of 400 MB and no reading', stuck)
    def no_next(r):
        r.greet()
        kind, _ = r.wire.receive()
        if kind == w.OFFER:  # all was computed when this side was heard: nothing came early
            return until_served(r)
        assert kind == w.BLOCKS, kind
        return until_closed(r)
    yield Case('BLOCKS never answered', no_next)
    def released(r):
        r.ask.join_key = key
        r.greet()
        o = r.await_offer(blocks=False)
        r.wire.send(w.RELEASE)
        time.sleep(0.05)
        r2 = r.again()
        # Even if the key is still known for a moment, no byte is; over ucx a READ comes after WORKER.
        read = w.pack_ranges([(o.state_id, 0, 0, 6144)])
        r2.wire.send_raw(w.frame(w.HELLO, r2.hello.pack()) + w.frame(w.JOIN, key) + w.frame(w.READ, read))
        try:
            return until_served(r2, ignore=(w.HELLO, w.BLOCKS, w.JOINED))
        finally:
            r2.wire.close()
    yield Case('JOIN of a conversation that is over', released, ['lease_expired', 'unknown_part', 'malformed', 'closed'])


def until_closed(r):
    while True:
        kind, payload = r.wire.receive()
        if kind == w.ERROR:
            raise w.Refused(*w.parse_error(payload))
