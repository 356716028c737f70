"""A malicious source's lies about the bytes themselves: DATA, stitched and forged bundles, silence."""

import struct

import wire as w
from peers import Lie
from source_lies import edges, opaque


def _ranges(change):
    def apply(told):
        ranges, data = [list(r) for r in told[0]], list(told[1])
        out = change(ranges, data)
        return out if out else (ranges, data)
    return apply


def data_lies(bundle):
    def column(at, value):
        def change(ranges, data):
            ranges[0][at] = value
        return _ranges(change)
    for value in opaque(bundle.offer.state_id):
        yield Lie('DATA.state_id=%s' % value.hex(), 'RANGE', change=column(0, value))
    for at, name, truth in ((1, 'key', 1 << 32), (2, 'offset', 0), (3, 'bytes', 16384)):
        for value in edges(64, truth):
            # Past a length that came: the rest never comes, so the connection must end for this not to be a silence.
            yield Lie('DATA.%s=%d' % (name, value), 'RANGE', change=column(at, value),
                      hang_up=True)
    for early in (True, False):  # In answer to a READ of blocks, or of everything.
        yield Lie('DATA nothing, %s' % early, 'RANGE', early=early, hang_up=True, change=lambda t: ([], []))
        yield Lie('DATA last range left out, %s' % early, 'RANGE', early=early, hang_up=True,
                  change=lambda t: (t[0][:-1], t[1][:-1]))
        yield Lie('DATA first range twice, %s' % early, 'RANGE', ['unknown_part'], early=early,
                  change=lambda t: (t[0] + t[0][:1], t[1] + t[1][:1]))
        yield Lie('DATA ranges reversed, %s' % early, 'RANGE', early=early, harmless=True,
                  change=lambda t: (t[0][::-1], t[1][::-1]))
        yield Lie('DATA zeros, %s' % early, 'RANGE', ['digest_mismatch', 'block_digest_mismatch'], early=early,
                  change=lambda t: (t[0], [bytes(len(d)) for d in t[1]]))
    for count in (0, 4097, 2**31, 2**32 - 1):
        yield Lie('DATA.count=%d' % count, 'DATA', ['malformed'],
                  rewrite=lambda raw, n=count: w.frame(w.DATA, struct.pack('<I', n) + raw[28:72]))
    def exchanged(ranges, data):
        same = [i for i in range(len(data)) if len(data[i]) == len(data[0])]
        data[same[0]], data[same[1]] = data[same[1]], data[same[0]]
    yield Lie('DATA of two blocks exchanged', 'RANGE', ['block_digest_mismatch'], early=False, change=_ranges(exchanged))
    for key, size in sorted(bundle.identity.shape.keys(96).items()):
        for at, bit in ((0, 1), (size // 2, 128), (size - 1, 1)):
            def flip(ranges, data, key=key, at=at, bit=bit):
                for i, r in enumerate(ranges):
                    if r[1] == key:
                        torn = bytearray(data[i])
                        torn[at] ^= bit
                        data[i] = bytes(torn)
            yield Lie('DATA bit %d of byte %d of part %x' % (bit, at, key), 'RANGE', early=False, change=_ranges(flip),
                      expect=['block_digest_mismatch' if key >> 32 else 'digest_mismatch', 'non_finite'])


def order_lies(bundle):
    """Whole frames at the wrong moment."""
    offer, blocks = bundle.offer.pack(), bundle.early[0].pack()
    for step in ('HELLO', 'BLOCKS', 'OFFER'):
        yield Lie('a thousand empty DATA frames ahead of %s' % step, step, before=w.frame(w.DATA, b'') * 1000)
        yield Lie('a thousand HELLOs ahead of %s' % step, step, before=w.frame(w.HELLO, bundle.hello.pack()) * 1000)
    yield Lie('a thousand stale OFFERs', 'OFFER', before=w.frame(w.OFFER, offer) * 1000)
    yield Lie('a thousand stale BLOCKS', 'BLOCKS', before=w.frame(w.BLOCKS, blocks) * 1000)


def silences(steps=('HELLO', 'BLOCKS', 'OFFER', 'DATA')):
    """Told to a worker with a short --handoff-timeout: each costs all of it."""
    for step in steps:
        yield Lie('nothing instead of %s' % step, step, silent=True)
        yield Lie('%s one byte a time, for ever' % step, step, rewrite=lambda raw: raw[:400],
                  drip=0.2 if step == 'ARENA' else 0.02)
    yield Lie('OFFER promises 64 MiB and says no more', 'OFFER', head={'length': 67108864})
    yield Lie('BLOCKS promises 64 MiB and says no more', 'BLOCKS', head={'length': 67108864})


def forge(bundle, digest, memory, **identity):
    """A seal and an OFFER that are true about `memory`, and claim the given identity fields."""
    offer, seal, who = w.Offer.parse(bundle.offer.pack()), w.Seal.parse(bundle.offer.seal), bundle.identity
    seal.algorithm = digest.algorithm
    for name, value in identity.items():
        setattr(seal, name, value)
    truth, who.digest = who.digest, digest
    seal.digests = [who.of(i, memory[i]) for i in range(len(who.shape.parts))]
    offer.groups = [[who.of((1 << 32) + b, memory[(1 << 32) + b]) for b in range(who.content.boundary // w.BLOCK)]]
    seal.block_root = who.root(offer.groups[0])
    who.digest = truth
    offer.seal = seal.pack()
    return offer


def stitched(bundle, other, shallow):
    """Bundles of other histories, and parts of them. `other`: as long, other tokens; `shallow`: the same tokens, fewer."""
    def lie(name, offer, memory, expect):
        def change(o):
            o.state_id, o.seal, o.groups, o.parts = offer.state_id, offer.seal, offer.groups, offer.parts
        return Lie(name, 'OFFER', expect, change=change, early=False, memory=memory)
    yield lie('the bundle of another prompt', other.offer, other.memory, ['identity_mismatch'])
    yield lie('the bundle of an earlier boundary', shallow.offer, shallow.memory,
              ['boundary_mismatch', 'missing_part'])
    yield lie('the bytes of another prompt under the right seal', bundle.offer, other.memory,
              ['digest_mismatch', 'block_digest_mismatch'])
    kv = {k: v for k, v in bundle.memory.items() if k >> 32}
    yield lie('the state of another prompt, the right KV', bundle.offer, {**other.memory, **kv}, ['digest_mismatch'])
    early = {k: v for k, v in shallow.memory.items() if not k >> 32}
    yield lie('the state of an earlier step, the right KV', bundle.offer, {**bundle.memory, **early},
              ['digest_mismatch'])
    relabelled = w.Seal.parse(other.offer.seal)
    relabelled.prefix = bundle.seal.prefix
    wrong = w.Offer.parse(other.offer.pack())
    wrong.seal = relabelled.pack()
    yield lie('the bundle of another prompt, relabelled', wrong, other.memory, ['digest_mismatch', 'block_digest_mismatch'])
    nan = {k: bytearray(v) for k, v in bundle.memory.items()}
    nan[1][4096:4100] = struct.pack('<f', float('nan'))
    yield lie('a NaN, sealed', forge(bundle, bundle.identity.digest, nan), nan, ['non_finite'])
    inf = {k: bytearray(v) for k, v in bundle.memory.items()}
    inf[(1 << 32) + 5][0:4] = struct.pack('<f', float('inf'))
    yield lie('an infinity in a block, sealed', forge(bundle, bundle.identity.digest, inf), inf, ['non_finite'])


def forged_without_key(bundle):
    """Other bytes, consistently sealed: by the unkeyed algorithm, by another key, or under the true digests."""
    other = {k: bytearray(v) for k, v in bundle.memory.items()}
    for data in other.values():
        data[4:8] = data[0:4]
    for name, digest in (('xxh3-128', w.Digest(1)), ('a guessed key', w.Digest(2, bytes(32))),
                         ('a short key', w.Digest(2, bytes(16)))):
        for algorithm in (1, 2):
            offer = forge(bundle, digest, other, algorithm=algorithm)
            def change(o, offer=offer):
                o.seal, o.groups = offer.seal, offer.groups
            yield Lie('bytes forged and sealed by %s as algorithm %d' % (name, algorithm), 'OFFER',
                      ['digest_mismatch', 'block_digest_mismatch', 'digest_algorithm'], change=change, early=False,
                      memory=other)
    yield Lie('forged bytes under the true seal', 'OFFER', ['digest_mismatch', 'block_digest_mismatch'],
              change=lambda o: o, early=False, memory=other)


def joined_lies(bundle):
    """Told on a connection that joined: what it had to bring may come over the other one, so the hand-off may succeed."""
    intruders = {kind: b'' for kind in w.NAMES}
    intruders.update({w.HELLO: bundle.hello.pack(), w.OFFER: bundle.offer.pack(), w.BLOCKS: bundle.early[0].pack(),
                      w.ERROR: w.string(b'lease_expired') + w.string(b'no')})
    for step in ('JOINED', 'HELLO', 'DATA'):
        for kind, payload in intruders.items():
            yield Lie('%s ahead of a joined %s' % (w.NAMES[kind], step), step, joined=True, harmless=True,
                      before=w.frame(kind, payload))
        for kind in w.NAMES:
            yield Lie('joined %s as type %d' % (step, kind), step, joined=True, harmless=True, head={'type': kind})
        for cut in (0, 1, 23, 24, 30):
            yield Lie('joined %s cut after %d' % (step, cut), step, joined=True, harmless=True, cut=cut)
        for length in (1, 65536, 65537, 2**32 - 1):
            yield Lie('joined %s of length %d' % (step, length), step, joined=True, harmless=True,
                      head={'length': length}, cut=1 << 30)
    for name in ('epoch', 'layout', 'model', 'probe', 'node'):
        for value in opaque(getattr(bundle.hello, name)):
            def change(hello, name=name, value=value):
                setattr(hello, name, value)
            yield Lie('joined HELLO.%s=%s' % (name, value.hex()), 'HELLO', joined=True, harmless=True, change=change)
    for column, values in enumerate((opaque(bundle.offer.state_id), edges(64, 1), edges(64, 0), edges(64, 6144))):
        for value in values:
            def change(ranges, data, column=column, value=value):
                ranges[0][column] = value
            yield Lie('joined DATA column %d %s' % (column, value), 'RANGE', joined=True, harmless=True, hang_up=True,
                      change=_ranges(change))
    yield Lie('joined DATA of zeros', 'RANGE', ['digest_mismatch', 'block_digest_mismatch'], joined=True,
              change=lambda t: (t[0], [bytes(len(d)) for d in t[1]]))
