"""Both sides of the conversation in docs/format/wire.md: honest by default, with a place to lie at every step."""

import os
import random
import socket
import threading
import time

import wire as w

PROMPT_TOKENS = 100
BOUNDARY = 96  # the last multiple of 16 that leaves a token to compute


def prompt(seed=5):
    draw = random.Random(seed)
    return [draw.randrange(3, 1500) for _ in range(PROMPT_TOKENS)]


def demo_shape():
    """What `baton inspect` prints about the embedded model."""
    return w.Shape([(layer, name, size) for layer in (0, 1, 3, 5) for name, size in ((b'conv', 6144), (b'ssm', 98304))],
                   [16384])


def make_hello(digest, model=bytes(32), layout=bytes(32)):
    hello = w.Hello()
    hello.version, hello.node, hello.epoch = 2, os.urandom(16), os.urandom(16)
    hello.model, hello.layout = model, layout
    hello.algorithm, hello.probe, hello.summary = digest.algorithm, digest.probe(), b'a peer written from the documents'
    return hello


def introduce(endpoint, digest):
    """The HELLO of a source to a peer that knows neither its model nor its layout yet."""
    c = w.Wire.connect(endpoint)
    if endpoint.startswith('shm:'):
        for _, fd in c.receive_arena():
            os.close(fd)
    c.send(w.HELLO, make_hello(digest).pack())
    theirs = w.Hello.parse(c.expect(w.HELLO))
    c.close()
    return theirs


class Bundle:
    """Everything one honest hand-off brought, verified."""

    def __init__(self, identity, hello, offer, seal, memory, early):
        self.identity, self.hello, self.offer, self.seal = identity, hello, offer, seal
        self.memory, self.early = memory, early

    def check(self):
        """Every digest recomputed from the bytes that came; raises on any difference."""
        identity, seal, offer = self.identity, self.seal, self.offer
        wanted = identity.shape.keys(identity.content.boundary)
        assert {p[0]: p[3] for p in offer.parts} == wanted and len(offer.parts) == len(wanted), 'parts of the offer'
        assert offer.state_id == seal.state_id and offer.epoch == seal.epoch == self.hello.epoch, 'state-id or epoch'
        ours = w.Content(seal.model, seal.layout, seal.scope, seal.prefix, seal.boundary)
        assert ours.pack() == identity.content.pack(), 'identity of the seal'
        for i, digest in enumerate(seal.digests):
            assert identity.of(i, self.memory[i]) == digest, 'state part %d' % i
        blocks = []
        for g, digests in enumerate(offer.groups):
            for b, digest in enumerate(digests):
                assert identity.of((g + 1 << 32) + b, self.memory[(g + 1 << 32) + b]) == digest, 'block %d' % b
                blocks.append(digest)
        assert identity.root(blocks) == seal.block_root, 'block root'
        assert seal.pack() == offer.seal, 'the seal does not encode as it came'

    def placed(self, places):
        """The same with other addresses: `places` is {part key: (region, offset)}."""
        offer, early = w.Offer.parse(self.offer.pack()), [w.Blocks.parse(record.pack()) for record in self.early]
        for part in offer.parts:
            part[1:3] = places[part[0]]
        for block in (block for record in early for block in record.blocks):
            block[2:4] = places[block[0]]
        return Bundle(self.identity, self.hello, offer, self.seal, self.memory, early)


class Receiver:
    """A conversation with a source, step by step."""

    def __init__(self, endpoint, digest, theirs, tokens, timeout=20):
        self.digest, self.tokens = digest, tokens
        self.hello = make_hello(digest, theirs.model, theirs.layout)
        self.identity = w.Identity(digest, demo_shape(), theirs.model, theirs.layout, tokens)
        self.ask = w.Ask.make(self.identity.content, tokens, attempt=int.from_bytes(os.urandom(8), 'little'))
        self.endpoint, self.wire = endpoint, w.Wire.connect(endpoint, timeout)
        self.memory, self.early = {}, []
        self.again = lambda: type(self)(endpoint, digest, theirs, tokens, timeout)
        self.open()

    def open(self):
        """Reads what a source says before it is asked: nothing, over tcp."""

    def close(self):
        self.wire.close()

    def greet(self):
        self.wire.send_raw(w.frame(w.HELLO, self.hello.pack()) + w.frame(w.ASK, self.ask.pack()))
        self.source = w.Hello.parse(self.wire.expect(w.HELLO))

    def pull(self, state_id, parts):
        """Parts: [key, region, offset, bytes] as in OFFER."""
        wire, sizes = self.wire, {p[0]: p[3] for p in parts}
        missing = dict(sizes)
        wire.send(w.READ, w.pack_ranges([(state_id, key, 0, size) for key, size in sizes.items()]))
        while missing:
            for sid, key, offset, size in w.parse_ranges(wire.expect(w.DATA)):
                assert sid == state_id and offset + size <= sizes[key], 'a range that nobody asked for'
                self.memory.setdefault(key, bytearray(sizes[key]))[offset:offset + size] = wire.read(size)
                missing[key] -= size
                if missing[key] == 0:
                    del missing[key]

    def await_offer(self, blocks=True):
        """Answers BLOCKS until the OFFER is there; pulls them if `blocks`."""
        while True:
            kind, payload = self.wire.receive()
            if kind == w.ERROR:
                raise w.Refused(*w.parse_error(payload))
            if kind == w.OFFER:
                return w.Offer.parse(payload)
            assert kind == w.BLOCKS, 'a %s before the OFFER' % w.NAMES.get(kind, kind)
            record = w.Blocks.parse(payload)
            assert record.pack() == payload, 'BLOCKS does not encode as it came'
            self.early.append(record)
            if blocks:
                self.pull(record.state_id, [[b[0], b[2], b[3], b[4]] for b in record.blocks])
            self.wire.send(w.NEXT)

    def fetch(self, blocks=True):
        self.greet()
        offer = self.await_offer(blocks)
        early = {b[0] for record in self.early if blocks for b in record.blocks}
        self.pull(offer.state_id, [p for p in offer.parts if p[0] not in early])
        self.wire.send(w.RELEASE)
        self.close()
        bundle = Bundle(self.identity, self.source, offer, w.Seal.parse(offer.seal), self.memory, self.early)
        bundle.check()
        assert offer.attempt == self.ask.attempt, 'attempt'
        return bundle


class Lie:
    """What a source says instead of the truth at one step. Default: nothing but the truth.

    step: name of the frame the lie is told in; change: applied to its record; head: fields of the frame's header;
    rewrite: replaces the bytes of the frame (and of what follows DATA); before: bytes sent ahead of it; cut: bytes of it
    that are sent before the connection is closed; drip: seconds between its bytes; silent: nothing is sent at all;
    hang_up: the connection ends after the first DATA; early: whether BLOCKS comes; joined: the lie is told
    on the joined connection only; memory: the bytes that are served; nexts: how many NEXT answer a told BLOCKS.
    Over shm only: arena(wire, memories) says the ARENA; fds(): descriptors that travel with `step`; meddle(memories):
    runs ahead of `step`; storm(memories, over): runs beside the conversation until over() holds.
    """

    def __init__(self, name, step='', expect=(), **how):
        self.name, self.step, self.expect = name, step, set(expect)
        self.change = how.pop('change', None)
        self.rewrite, self.before = how.pop('rewrite', None), how.pop('before', b'')
        self.head, self.cut = how.pop('head', {}), how.pop('cut', None)
        self.drip, self.silent = how.pop('drip', 0), how.pop('silent', False)
        self.early, self.harmless = how.pop('early', True), how.pop('harmless', False)
        self.joined, self.nexts = how.pop('joined', False), how.pop('nexts', 1)
        self.hang_up, self.memory = how.pop('hang_up', False), how.pop('memory', None)
        self.arena, self.fds = how.pop('arena', None), how.pop('fds', tuple)
        self.meddle, self.storm = how.pop('meddle', None), how.pop('storm', None)
        assert not how, how


class Source:
    """A server that replays a bundle to whoever asks, and tells `lie`. One conversation at a time is enough."""

    def __init__(self, bundle, digest):
        self.bundle, self.digest, self.lie = bundle, digest, Lie('the truth')
        self.told, self.joins, self.asks, self.trouble, self.servers = 0, 0, [], [], []
        self.endpoint = self._serve_at()
        # KV over one connection, state over another: one of them asks, the other joins.
        self.plan = 'kv=%s,state=%s' % (self.endpoint, self._serve_at())

    def _serve_at(self):
        server, endpoint = self._listen()
        self.servers.append(server)
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        return endpoint

    def close(self):
        """From here on nobody answers at the endpoints."""
        for server in self.servers:
            server.shutdown(socket.SHUT_RDWR)
            server.close()

    # What differs between transports: where it listens, what it says unasked, and how bytes go.

    def _listen(self):
        server = socket.create_server(('127.0.0.1', 0))
        return server, 'tcp:127.0.0.1:%d' % server.getsockname()[1]

    def _open(self, wire, lie):
        pass

    def _end(self, wire):
        pass

    def _answer(self, wire, lie, kind, payload):
        """Serves a frame that asks for bytes; False for any other."""
        if kind != w.READ:
            return False
        ranges = [list(r) for r in w.parse_ranges(payload)]
        memory = lie.memory or self.bundle.memory
        data = [bytes(memory[key][offset:offset + size]) for _, key, offset, size in ranges]
        ranges, data = self._tell(lie, 'RANGE', (ranges, data))
        self._say(wire, lie, w.DATA, w.pack_ranges(ranges), b''.join(data))
        if lie.hang_up:
            raise w.Closed()
        return True

    def _accept(self, server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        wire = w.Wire(connection, 30)
        lie = self.lie
        try:
            self._open(wire, lie)
            self._converse(wire, lie)
        except (w.Closed, w.Refused, OSError):
            pass
        except Exception as e:  # A receiver that breaks the documents is a finding; the main thread reports it.
            self.trouble.append('%s: %r' % (lie.name, e))
        self._end(wire)
        wire.close()

    def _say(self, wire, lie, kind, payload, tail=b'', fds=()):
        if lie.step != w.NAMES[kind]:
            return wire.send_raw(w.frame(kind, payload) + tail, fds)
        self.told += 1
        fds = tuple(fds) + tuple(lie.fds())
        if lie.meddle:
            lie.meddle(wire.memories)
        if lie.silent:
            while True:
                wire.read(1)
        if fds and lie.before:  # The descriptors stay with the frame they belong to.
            wire.send_raw(lie.before)
        raw = (b'' if fds else lie.before) + w.frame(kind, payload, **lie.head) + tail
        raw = lie.rewrite(raw) if lie.rewrite else raw
        raw = raw if lie.cut is None else raw[:lie.cut]
        if not lie.drip and raw:
            wire.send_raw(raw, fds)
        for i in range(len(raw) if lie.drip else 0):
            wire.send_raw(raw[i:i + 1], fds if i == 0 else ())
            time.sleep(lie.drip)
        if lie.cut is not None:
            raise w.Closed()

    def _tell(self, lie, step, record):
        if lie.step == step and lie.change:
            self.told += step in ('SEAL', 'RANGE', 'PIECES')
            told = lie.change(record)
            return record if told is None else told
        return record

    def _converse(self, wire, lie):
        theirs = w.Hello.parse(wire.expect(w.HELLO))
        hello = make_hello(self.digest, theirs.model, theirs.layout)
        hello.probe, hello.epoch, hello.node = theirs.probe, self.bundle.offer.epoch, self.bundle.hello.node
        # What the connection is for shows in the frame behind the HELLO, which came with it.
        kind, payload = wire.receive()
        joins = kind == w.JOIN
        lie = lie if joins == lie.joined else Lie('the truth')
        self._say(wire, lie, w.HELLO, self._tell(lie, 'HELLO', hello).pack())
        if joins:
            self.joins += 1
            self._await_key(payload)
            self._say(wire, lie, w.JOINED, b'')
            kind = self._serve_reads(wire, lie)
            raise ValueError('%s on a joined connection' % w.NAMES.get(kind, kind))
        if kind != w.ASK:
            raise ValueError('ASK or JOIN expected, %s came' % w.NAMES.get(kind, kind))
        ask = w.Ask.parse(payload)
        assert ask.pack() == payload, 'the ASK does not encode as it came'
        self.asks.append(ask)
        if ask.blocks and lie.early:
            for record in self.bundle.early:
                record = w.Blocks.parse(record.pack())
                record.attempt = ask.attempt
                self._say(wire, lie, w.BLOCKS, self._tell(lie, 'BLOCKS', record).pack())
                for _ in range(lie.nexts):
                    if self._serve_reads(wire, lie) != w.NEXT:
                        raise ValueError('NEXT expected')
        offer = w.Offer.parse(self.bundle.offer.pack())
        offer.attempt = ask.attempt
        seal = self._tell(lie, 'SEAL', w.Seal.parse(offer.seal))
        offer.seal = seal if isinstance(seal, bytes) else seal.pack()
        offer.state_id = offer.state_id if isinstance(seal, bytes) else seal.state_id
        self._say(wire, lie, w.OFFER, self._tell(lie, 'OFFER', offer).pack())
        if self._serve_reads(wire, lie) != w.RELEASE:
            raise ValueError('RELEASE expected')

    def _await_key(self, key):
        for _ in range(500):  # The ASK may be behind.
            if key != bytes(16) and any(ask.join_key == key for ask in self.asks):
                return
            time.sleep(0.01)
        raise ValueError('JOIN with a key that no ASK named')

    def _serve_reads(self, wire, lie):
        while True:
            kind, payload = wire.receive()
            if kind == w.ERROR:
                raise w.Refused(*w.parse_error(payload))
            if not self._answer(wire, lie, kind, payload):
                return kind
