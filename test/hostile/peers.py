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


class Receiver:
    """A conversation with a source, step by step."""

    def __init__(self, endpoint, digest, theirs, tokens, timeout=20):
        self.digest, self.tokens = digest, tokens
        self.hello = make_hello(digest, theirs.model, theirs.layout)
        self.identity = w.Identity(digest, demo_shape(), theirs.model, theirs.layout, tokens)
        self.ask = w.Ask.make(self.identity.content, tokens, attempt=int.from_bytes(os.urandom(8), 'little'))
        self.endpoint, self.wire = endpoint, w.Wire.connect(endpoint, timeout)
        self.memory, self.early = {}, []
        self.again = lambda: Receiver(endpoint, digest, theirs, tokens, timeout)

    def greet(self):
        self.wire.send_raw(w.frame(w.HELLO, self.hello.pack()) + w.frame(w.ASK, self.ask.pack()))
        self.source = w.Hello.parse(self.wire.expect(w.HELLO))

    def pull(self, state_id, parts, wire=None):
        """Parts: {key: bytes}."""
        wire = wire or self.wire
        missing = dict(parts)
        wire.send(w.READ, w.pack_ranges([(state_id, key, 0, size) for key, size in parts.items()]))
        while missing:
            for sid, key, offset, size in w.parse_ranges(wire.expect(w.DATA)):
                assert sid == state_id and offset + size <= parts[key], 'a range that nobody asked for'
                self.memory.setdefault(key, bytearray(parts[key]))[offset:offset + size] = wire.read(size)
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
                self.pull(record.state_id, {b[0]: b[4] for b in record.blocks})
            self.wire.send(w.NEXT)

    def fetch(self, blocks=True):
        self.greet()
        offer = self.await_offer(blocks)
        early = {b[0] for record in self.early if blocks for b in record.blocks}
        self.pull(offer.state_id, {p[0]: p[3] for p in offer.parts if p[0] not in early})
        self.wire.send(w.RELEASE)
        self.wire.close()
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
    on the joined connection only; memory: the bytes that DATA carries.
    """

    def __init__(self, name, step='', expect=(), **how):
        self.name, self.step, self.expect = name, step, set(expect)
        self.change = how.pop('change', None)
        self.rewrite, self.before = how.pop('rewrite', None), how.pop('before', b'')
        self.head, self.cut = how.pop('head', {}), how.pop('cut', None)
        self.drip, self.silent = how.pop('drip', 0), how.pop('silent', False)
        self.early, self.harmless = how.pop('early', True), how.pop('harmless', False)
        self.joined = how.pop('joined', False)
        self.hang_up, self.memory = how.pop('hang_up', False), how.pop('memory', None)
        assert not how, how


class Source:
    """A server that replays a bundle to whoever asks, and tells `lie`. One conversation at a time is enough."""

    def __init__(self, bundle, digest):
        self.bundle, self.digest, self.lie = bundle, digest, Lie('the truth')
        self.told, self.joins, self.asks, self.trouble = 0, 0, [], []
        self.endpoint = self._listen()
        # KV over one connection, state over another: one of them asks, the other joins.
        self.plan = 'kv=%s,state=%s' % (self.endpoint, self._listen())

    def _listen(self):
        server = socket.create_server(('127.0.0.1', 0))
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        return 'tcp:127.0.0.1:%d' % server.getsockname()[1]

    def _accept(self, server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        wire = w.Wire(connection, 30)
        try:
            self._converse(wire, self.lie)
        except (w.Closed, w.Refused, OSError):
            pass
        except Exception as e:  # A receiver that breaks the documents is a finding; the main thread reports it.
            self.trouble.append('%s: %r' % (self.lie.name, e))
        wire.close()

    def _say(self, wire, lie, kind, payload, tail=b''):
        if lie.step != w.NAMES[kind]:
            return wire.send_raw(w.frame(kind, payload) + tail)
        self.told += 1
        if lie.silent:
            while True:
                wire.read(1)
        raw = lie.before + w.frame(kind, payload, **lie.head) + tail
        raw = lie.rewrite(raw) if lie.rewrite else raw
        raw = raw if lie.cut is None else raw[:lie.cut]
        if not lie.drip:
            wire.send_raw(raw)
        for i in range(len(raw) if lie.drip else 0):
            wire.send_raw(raw[i:i + 1])
            time.sleep(lie.drip)
        if lie.cut is not None:
            raise w.Closed()

    def _tell(self, lie, step, record):
        if lie.step == step and lie.change:
            self.told += step in ('SEAL', 'RANGE')
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
            if kind != w.READ:
                return kind
            ranges = [list(r) for r in w.parse_ranges(payload)]
            memory = lie.memory or self.bundle.memory
            data = [bytes(memory[key][offset:offset + size]) for _, key, offset, size in ranges]
            ranges, data = self._tell(lie, 'RANGE', (ranges, data))
            self._say(wire, lie, w.DATA, w.pack_ranges(ranges), b''.join(data))
            if lie.hang_up:
                raise w.Closed()
