"""The lies of a malicious source: one per case, about every field of every frame it may send.

`expect` holds the reason codes that docs/format names for the lie; empty: any refusal will do. `harmless`: a field the
documents believe for nothing, so that the hand-off may also succeed.
"""

import struct

import wire as w
from peers import Lie

MAX64 = 2**64 - 1
KNOWN_REASONS = ['model_mismatch', 'layout_mismatch', 'digest_algorithm', 'protocol_version', 'scope_mismatch',
                 'identity_mismatch', 'boundary_mismatch', 'attempt_mismatch', 'epoch_mismatch', 'state_id_mismatch',
                 'digest_mismatch', 'block_digest_mismatch', 'missing_part', 'unknown_part', 'short_transfer',
                 'non_finite', 'malformed', 'stale_handle', 'lease_expired', 'peer_unavailable', 'peer_error',
                 'no_capacity', 'cancelled']


def edges(bits, truth):
    """0, 1, off by one both ways, half, max, and single flipped bits."""
    top = 2**bits - 1
    values = [0, 1, truth - 1, truth + 1, 2 * truth, top, top - 1, 2**(bits - 1), truth ^ 1, truth ^ 2**(bits // 2)]
    return sorted({v for v in values if 0 <= v <= top and v != truth})


def opaque(truth):
    """Lies about an identifier or a hash."""
    flip = lambda at: truth[:at] + bytes([truth[at] ^ 1]) + truth[at + 1:]
    return [bytes(len(truth)), b'\xff' * len(truth), flip(0), flip(len(truth) - 1), truth[1:] + truth[:1]]


def put(name, value):
    return lambda record: setattr(record, name, value)


def with_payload(change):
    """Rewrites a frame's payload and makes its header true again, so that the lie reaches the record's parser."""
    return lambda raw: w.frame(struct.unpack_from('<H', raw, 4)[0], change(raw[24:]))


def fields(step, record, names, expect, harmless=()):
    for name in names:
        truth = getattr(record, name)
        form = dict(getattr(record, 'FIELDS', [])).get(name, 'Q')
        values = opaque(truth) if isinstance(truth, bytes) else edges(8 * struct.calcsize('<' + form), truth)
        for value in values:
            told = value.hex() if isinstance(value, bytes) else value
            yield Lie('%s.%s=%s' % (step, name, told), step, expect.get(name, ()), change=put(name, value),
                      harmless=name in harmless)


def hello_lies(bundle):
    names = ['version', 'node', 'epoch', 'model', 'layout', 'algorithm', 'probe']
    expect = {'version': ['protocol_version'], 'model': ['model_mismatch'], 'layout': ['layout_mismatch'],
              'algorithm': ['digest_algorithm'], 'probe': ['digest_algorithm'], 'epoch': ['epoch_mismatch']}
    yield from fields('HELLO', bundle.hello, names, expect, harmless=['node'])
    for size in (0, 1023, 1024):
        yield Lie('HELLO.summary of %d' % size, 'HELLO', change=put('summary', b's' * size), harmless=True)
    for size in (1025, 65536, 1 << 20):
        yield Lie('HELLO.summary of %d' % size, 'HELLO', ['malformed'], change=put('summary', b's' * size))
    yield Lie('HELLO.summary not text', 'HELLO', change=put('summary', b'\0\xff\n"\\%s%n'), harmless=True)
    for length in (0, 1, 2**31, 2**32 - 1):
        yield Lie('HELLO.summary length %d' % length, 'HELLO', ['malformed'],
                  rewrite=with_payload(lambda p, n=length: p[:117] + struct.pack('<I', n) + p[121:]))


def offer_lies(bundle):
    offer = bundle.offer
    expect = {'attempt': ['attempt_mismatch'], 'epoch': ['epoch_mismatch'], 'seal_length': ['malformed'],
              'state_id': ['state_id_mismatch', 'malformed'], 'group_count': ['malformed'], 'part_count': ['malformed'],
              'checksum': ['malformed'], 'digest_counts': ['malformed']}
    yield from fields('OFFER', offer, ['attempt', 'epoch', 'state_id', 'lease_ms', 'not_computed'], expect,
                      harmless=['lease_ms', 'not_computed'])
    truth = {'seal_length': len(offer.seal), 'group_count': len(offer.groups), 'part_count': len(offer.parts),
             'digest_counts': len(offer.groups[0])}
    for name, value in truth.items():
        for lie in edges(32, value):
            yield Lie('OFFER.%s=%d' % (name, lie), 'OFFER', expect[name], change=put(name, lie))
    yield Lie('OFFER.checksum', 'OFFER', ['malformed'], change=put('checksum', 1))
    for i in range(len(offer.parts)):
        for column, name in enumerate(('key', 'region', 'offset', 'bytes')):
            values = edges(32 if column == 1 else 64, offer.parts[i][column])
            for value in values if i in (0, 5, 6, 13) else values[-2:]:
                def change(o, i=i, column=column, value=value):
                    o.parts[i][column] = value
                yield Lie('OFFER.parts[%d].%s=%d' % (i, name, value), 'OFFER', change=change, harmless=column in (1, 2))
        def drop(o, i=i):
            del o.parts[i]
        def twice(o, i=i):
            o.parts.append(list(o.parts[i]))
        yield Lie('OFFER without part %d' % i, 'OFFER', ['missing_part'], change=drop)
        yield Lie('OFFER part %d twice' % i, 'OFFER', ['unknown_part', 'malformed'], change=twice)
    for i in range(len(offer.groups[0])):
        for value in opaque(offer.groups[0][i])[:3]:
            def change(o, i=i, value=value):
                o.groups[0][i] = value
            yield Lie('OFFER.groups[0][%d]=%s' % (i, value.hex()), 'OFFER', change=change)
    def swap(o):
        o.groups[0][0], o.groups[0][1] = o.groups[0][1], o.groups[0][0]
    yield Lie('OFFER digests exchanged', 'OFFER', change=swap)
    yield Lie('OFFER without parts', 'OFFER', ['missing_part'], change=put('parts', []))
    yield Lie('OFFER without groups', 'OFFER', change=put('groups', []))
    yield Lie('OFFER with an empty group more', 'OFFER', change=lambda o: o.groups.append([]))
    yield Lie('OFFER with 65536 groups', 'OFFER', change=put('groups', [[]] * 65536))
    yield Lie('OFFER with 100000 parts', 'OFFER', change=put('parts', [[i, 0, 0, 64] for i in range(100000)]))
    yield Lie('OFFER parts reversed', 'OFFER', change=lambda o: o.parts.reverse(), harmless=True)


def seal_lies(bundle):
    seal = bundle.seal
    expect = {'magic': ['malformed'], 'version': ['protocol_version'], 'algorithm': ['digest_algorithm'],
              'reserved': ['malformed'], 'length': ['malformed'], 'state_count': ['malformed'],
              'block_count': ['missing_part', 'unknown_part'], 'reserved2': ['malformed'], 'model': ['model_mismatch'],
              'layout': ['layout_mismatch'], 'scope': ['scope_mismatch'], 'prefix': ['identity_mismatch'],
              'boundary': ['boundary_mismatch', 'malformed', 'missing_part', 'unknown_part'],
              'state_id': ['malformed', 'state_id_mismatch'], 'block_root': ['block_digest_mismatch', 'digest_mismatch', 'digest_algorithm']}
    names = [name for name, _ in w.Seal.FIELDS]
    # The state-id lie of the seal is told in the OFFER too: a source may call its bundle what it likes, except nothing.
    yield from fields('SEAL', seal, names, expect, harmless=['parent', 'producer', 'epoch', 'state_id'])
    for i in range(len(seal.digests)):
        for value in opaque(seal.digests[i]):
            def change(s, i=i, value=value):
                s.digests[i] = value
            yield Lie('SEAL.digests[%d]=%s' % (i, value.hex()), 'SEAL', ['digest_mismatch', 'digest_algorithm'],
                      change=change)
    def one_more(s):
        s.digests.append(s.digests[0])
        s.state_count, s.length = s.state_count + 1, s.length + 16
    def one_less(s):
        s.digests.pop()
        s.state_count, s.length = s.state_count - 1, s.length - 16
    def none_left(s):
        s.digests, s.state_count, s.length = [], 0, 272
    def most(s):
        s.digests, s.state_count = s.digests * 2048, 16384
        s.length = 272 + 16 * 16384
    yield Lie('SEAL one digest more', 'SEAL', ['unknown_part'], change=one_more)
    yield Lie('SEAL one digest less', 'SEAL', ['missing_part'], change=one_less)
    yield Lie('SEAL no digests', 'SEAL', ['missing_part'], change=none_left)
    yield Lie('SEAL 16384 digests', 'SEAL', ['unknown_part'], change=most)
    packed = seal.pack()
    yield Lie('SEAL empty', 'SEAL', ['malformed'], change=lambda s: b'')
    for size in (1, 4, 271, 272, len(packed) - 1):
        yield Lie('SEAL cut to %d' % size, 'SEAL', ['malformed'], change=lambda s, n=size: packed[:n])
    yield Lie('SEAL with a byte more', 'SEAL', ['malformed'], change=lambda s: packed + b'\0')
    yield Lie('SEAL with checksum of zeros', 'SEAL', ['malformed'], change=lambda s: s.pack(bytes(32)))


def blocks_lies(bundle):
    blocks = bundle.early[0]
    expect = {'attempt': ['attempt_mismatch'], 'epoch': ['epoch_mismatch']}
    # Another state-id in BLOCKS than in the OFFER is allowed: everything is pulled again; and the lease bounds the source.
    yield from fields('BLOCKS', blocks, ['attempt', 'epoch', 'lease_ms', 'state_id'], expect,
                      harmless=['lease_ms', 'state_id'])
    for value in edges(32, len(blocks.blocks)):
        yield Lie('BLOCKS.count=%d' % value, 'BLOCKS', ['malformed'], change=put('count', value))
    yield Lie('BLOCKS.checksum', 'BLOCKS', ['malformed'], change=put('checksum', 1))
    for i in range(len(blocks.blocks)):
        for column, name in enumerate(('key', 'digest', 'region', 'offset', 'bytes')):
            truth = blocks.blocks[i][column]
            values = opaque(truth) if column == 1 else edges(32 if column == 2 else 64, truth)
            for value in values:
                def change(b, i=i, column=column, value=value):
                    b.blocks[i][column] = value
                told = value.hex() if column == 1 else value
                # A wrong digest or a block twice may only cost another pull: the OFFER decides.
                yield Lie('BLOCKS.blocks[%d].%s=%s' % (i, name, told), 'BLOCKS', change=change,
                          harmless=column in (0, 1, 2, 3))
    yield Lie('BLOCKS twice the same', 'BLOCKS', change=lambda b: b.blocks.extend(b.blocks), harmless=True)
    yield Lie('BLOCKS with none', 'BLOCKS', ['malformed'], change=put('blocks', []))
    many = lambda n: [[(1 << 32) + 6 + i, bytes([1] * 16), 0, 0, 16384] for i in range(n)]
    yield Lie('BLOCKS with 65536 unknown', 'BLOCKS', ['unknown_part'], change=put('blocks', many(65536)))
    yield Lie('BLOCKS with 65537', 'BLOCKS', ['malformed'], change=put('blocks', many(65537)))
    state = [[0, bytes([1] * 16), 0, 0, 6144]]
    yield Lie('BLOCKS with a state part', 'BLOCKS', ['unknown_part'], change=put('blocks', state))


def field_lies(bundle):
    """(title, lies) about the fields of each record that a source sends."""
    return (('fields of HELLO', hello_lies(bundle)), ('fields of BLOCKS', blocks_lies(bundle)),
            ('fields of OFFER', offer_lies(bundle)), ('fields of the seal', seal_lies(bundle)))


def frame_lies(bundle, more=None):
    """About the header of every frame, and where it ends. `more`: payloads of frames that only one transport has."""
    first_data = w.pack_ranges([(bundle.offer.state_id, 1 << 32, 0, 16384)])
    samples = {'HELLO': bundle.hello.pack(), 'BLOCKS': bundle.early[0].pack(), 'OFFER': bundle.offer.pack()}
    more = {'DATA': first_data} if more is None else more
    for step, payload in {**samples, **more}.items():
        size = len(payload)
        for kind in [0, 15, 21, 255, 65535] + [k for k in w.NAMES if w.NAMES[k] != step]:
            yield Lie('%s as type %d' % (step, kind), step, head={'type': kind})
        for flags in (1, 0x8000, 0xffff):
            yield Lie('%s flags %d' % (step, flags), step, ['malformed'], head={'flags': flags})
        for magic in opaque(w.MAGIC):
            yield Lie('%s magic %s' % (step, magic.hex()), step, ['malformed'], head={'magic': magic})
        yield Lie('%s wrong payload sum' % step, step, ['malformed'], head={'payload_sum': 1})
        yield Lie('%s wrong header sum' % step, step, ['malformed'], head={'header_sum': 1})
        # The whole frame and no byte more, then the end: a longer length than came, or a shorter one.
        for length in (0, 1, size - 1, size + 1, 67108864, 67108865, 2**31, 2**32 - 1):
            yield Lie('%s length %d' % (step, length), step, head={'length': length}, cut=size + 24)
        for cut in (0, 1, 12, 23, 24, 25, 24 + size // 2, 24 + size - 1):
            yield Lie('%s cut after %d' % (step, cut), step, cut=cut)
        # Over shm a receiver needs nothing more of the source: what comes behind, it may never look at.
        alone = step in ('BLOCKS', 'OFFER') and 'ARENA' in more
        yield Lie('%s cut whole' % step, step, cut=24 + size, harmless=step == 'OFFER' and alone)
        yield Lie('%s twice' % step, step, rewrite=lambda raw: raw + raw, harmless=step == 'DATA' or alone,
                  nexts=2 if alone and step == 'BLOCKS' else 1)
        yield Lie('%s random bytes' % step, step, rewrite=lambda raw: bytes((i * 167 + 13) & 255 for i in range(4096)))
        if step == 'DATA':
            continue
        yield Lie('%s empty' % step, step, rewrite=with_payload(lambda p: b''))
        yield Lie('%s with a byte more' % step, step, ['malformed'], rewrite=with_payload(lambda p: p + b'\0'))
        for keep in range(1, 24):
            yield Lie('%s payload ends after %d/24' % (step, keep), step,
                      rewrite=with_payload(lambda p, n=keep: p[:len(p) * n // 24]))
        yield Lie('%s of 64 MiB that come' % step, step, rewrite=with_payload(lambda p: p + bytes(67108864 - len(p))))
    intruders = {kind: b'' for kind in w.NAMES}
    intruders.update({w.ERROR: w.string(b'peer_error') + w.string(b'no'), w.OFFER: samples['OFFER'],
                      w.BLOCKS: samples['BLOCKS'], w.HELLO: samples['HELLO'], w.DATA: first_data,
                      w.READ: first_data, w.ARENA: struct.pack('<IQ', 1, 4096), w.LANDED: bytes(8)})
    for step in [*samples, *more]:
        for kind, payload in intruders.items():
            yield Lie('%s ahead of %s' % (w.NAMES[kind], step), step, before=w.frame(kind, payload))


def error_lies():
    for reason in KNOWN_REASONS:
        raw = w.frame(w.ERROR, w.string(reason.encode()) + w.string(b'as you wish'))
        yield Lie('ERROR %s' % reason, 'OFFER', [reason], before=raw)
    for reason in (b'', b'unheard_of', b'"} 1\nbaton:forged{x="', b'\0', b'r' * 4096, b'r' * (1 << 20)):
        raw = w.frame(w.ERROR, w.string(reason) + w.string(b'text'))
        yield Lie('ERROR %r of %d' % (reason[:12], len(reason)), 'OFFER', ['peer_error', 'malformed'], before=raw)
    for text in (b'', b'\0\x1b[2J\n%s%n', b't' * 4096, b't' * 4097, b't' * (1 << 22)):
        raw = w.frame(w.ERROR, w.string(b'no_capacity') + w.string(text))
        yield Lie('ERROR text of %d' % len(text), 'OFFER', ['no_capacity', 'malformed'], before=raw)
    for payload in (b'', b'\0', w.string(b'no_capacity'), struct.pack('<I', 2**32 - 1), w.string(b'a') + b'\xff' * 4):
        yield Lie('ERROR payload %s' % payload[:8].hex(), 'OFFER', ['malformed'], before=w.frame(w.ERROR, payload))


def every_bit(bundle):
    """Each byte of each record with one bit flipped and all checksums true; what may pass, passes with equal tokens."""
    for step, record in (('HELLO', bundle.hello), ('BLOCKS', bundle.early[0]), ('OFFER', bundle.offer)):
        payload = record.pack()
        for at in range(len(payload) - (0 if step == 'HELLO' else 8)):
            def change(p, at=at, inner=step != 'HELLO'):
                torn = bytearray(p)
                torn[at % len(torn)] ^= 1 << at % 8  # A HELLO is told with a summary of its own.
                return bytes(torn[:-8]) + struct.pack('<Q', w.xxh3_64(torn[:-8])) if inner else bytes(torn)
            yield Lie('%s bit %d of byte %d' % (step, at % 8, at), step, rewrite=with_payload(change), harmless=True)
    packed = bundle.seal.pack()
    for at in range(len(packed) - 32):
        def flip(s, at=at):
            torn = bytearray(packed[:-32])
            torn[at] ^= 1 << at % 8
            return bytes(torn) + w.sha256(bytes(torn))
        yield Lie('seal bit %d of byte %d' % (at % 8, at), 'SEAL', change=flip, harmless=True)
