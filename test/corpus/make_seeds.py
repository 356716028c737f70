#!/usr/bin/env python3
"""Writes the seeds of the corpus: real records, as two `baton serve` workers speak them, and a few made by hand.

usage: make_seeds.py BATON

They go into test/corpus/<target>/seed-*; what fuzzing found lies beside them. The records are read and written by
test/hostile/wire.py, which knows docs/format alone. The layout record never travels, so it is written here from layout.md.
"""

import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'hostile'))

import wire as w
from peers import BOUNDARY, Receiver, Source, introduce, prompt
from worker import Worker

# First byte of an input of wire_fuzz: which frame the rest is the payload of.
WIRE_TYPES = [w.HELLO, w.BLOCKS, w.JOIN, w.ERROR, w.READ, w.DATA]


def save(target, name, data):
    directory = os.path.join(HERE, target)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, 'seed-' + name), 'wb') as f:
        f.write(data)


def save_wire(name, kind, payload):
    save('wire_fuzz', name, bytes([WIRE_TYPES.index(kind)]) + payload)


def layout_record(parts, groups, extra=b'tp=0/1'):
    """layout.md; parts: (layer, name, shape, axes), groups: (name, window, heads, dim, axes, layers); all f32."""
    up = lambda n, to: -(-n // to) * to
    body, end = b'', 0
    for layer, name, shape, axes in parts:
        size = 4
        for extent in shape:
            size *= extent
        offset = up(end, 64)
        end = offset + size
        body += struct.pack('<I', layer) + w.string(name) + struct.pack('<BB%dq' % len(shape), 1, len(shape), *shape)
        body += w.string(axes) + struct.pack('<QQ', offset, size)
    for name, window, heads, dim, axes, layers in groups:
        size = len(layers) * 2 * heads * dim * 16 * 4
        body += w.string(name) + struct.pack('<III', window, heads, dim) + b'\1' + w.string(axes)
        body += struct.pack('<QI%dI' % len(layers), size, len(layers), *layers)
    head = b'BLAY' + struct.pack('<HHIIIIII', 1, 0, 72 + 4 + len(extra) + len(body) + 32, 16, 64, 4096,
                                 len(parts), len(groups))
    record = head + w.sha256(b'numerics') + struct.pack('<Q', up(end, 4096)) + w.string(extra) + body
    return record + w.sha256(record)


def main():
    prefill, decode = Worker(sys.argv[1], 'prefill'), Worker(sys.argv[1], 'decode')
    digest = w.Digest()
    theirs = introduce(prefill.endpoint, digest)
    for boundary in (16, 48, BOUNDARY):
        bundle = Receiver(prefill.endpoint, digest, theirs, prompt()[:boundary]).fetch()
        save('offer_fuzz', 'demo-%d' % boundary, bundle.offer.pack())
        save('seal_fuzz', 'demo-%d' % boundary, bundle.offer.seal)
        for i, blocks in enumerate(bundle.early):
            save_wire('blocks-%d-%d' % (boundary, i), w.BLOCKS, blocks.pack())
    source = Source(bundle, digest)
    for seed in (5, 6):
        decode.generate(prompt(seed), source.endpoint)
    for i, ask in enumerate(source.asks):
        save('ask_fuzz', 'demo-%d' % i, ask.pack())
    ask.hint_flag, ask.hint_boundary, ask.hint_endpoint, ask.join_key = 1, 48, b'tcp:127.0.0.1:7001', bytes(range(16))
    save('ask_fuzz', 'hint', ask.pack())
    save_wire('hello', w.HELLO, theirs.pack())
    save_wire('join', w.JOIN, bytes(range(1, 17)))
    save_wire('error', w.ERROR, w.string(b'no_capacity') + w.string(b'no slot is free'))
    ranges = [(bundle.offer.state_id, p[0], 0, p[3]) for p in bundle.offer.parts]
    save_wire('read', w.READ, w.pack_ranges(ranges))
    save_wire('data', w.DATA, w.pack_ranges(ranges[:1]))
    bundle.seal.algorithm, bundle.seal.parent = 2, bytes(range(16))
    save('seal_fuzz', 'keyed', bundle.seal.pack())
    conv, ssm = (b'conv', [3, 512], b'tap-oldest-first,channel'), (b'ssm', [6, 64, 64], b'H,N,P')
    parts = [(layer,) + part for layer in (0, 1, 3, 5) for part in (conv, ssm)]
    full = (b'full', 0, 2, 32, b'heads,dim,tokens', [2, 4])
    save('layout_fuzz', 'hybrid', layout_record(parts, [full]))
    save('layout_fuzz', 'state-only', layout_record(parts[:2], []))
    save('layout_fuzz', 'windowed', layout_record(parts[:1], [full, (b'local', 512, 1, 8, b'', [7, 9, 11])], b''))
    save('layout_fuzz', 'empty', layout_record([], [], b''))
    sys.exit(decode.stop() or prefill.stop())


if __name__ == '__main__':
    main()
