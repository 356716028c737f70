"""The hand-off's frames and records, written from docs/format/ alone.

Nothing here comes from Baton's sources, and nothing may: this is the second reading of the documents. Where they do not
suffice, the documents are to be mended. Little-endian everywhere; digests are bytes.
"""

import ctypes
import hashlib
import socket
import struct
import time

MAGIC = b'BTN1'
HELLO, ASK, OFFER, RELEASE, ERROR, BLOCKS, NEXT, JOIN, JOINED = range(1, 10)
READ, DATA, ARENA, WORKER, LANDED = range(16, 21)
NAMES = {1: 'HELLO', 2: 'ASK', 3: 'OFFER', 4: 'RELEASE', 5: 'ERROR', 6: 'BLOCKS', 7: 'NEXT', 8: 'JOIN', 9: 'JOINED',
         16: 'READ', 17: 'DATA', 18: 'ARENA', 19: 'WORKER', 20: 'LANDED'}
BLOCK = 16  # tokens of a KV block
EMPTY_SALT = b''


class _Hash128(ctypes.Structure):
    _fields_ = [('low', ctypes.c_uint64), ('high', ctypes.c_uint64)]


def _load_xxhash():
    library = ctypes.CDLL('libxxhash.so.0')
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.XXH3_128bits.restype = _Hash128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


_XXH = _load_xxhash()


def xxh3_64(data):
    return _XXH.XXH3_64bits(bytes(data), len(data))


def xxh3_128(data):
    value = _XXH.XXH3_128bits(bytes(data), len(data))
    return struct.pack('>QQ', value.high, value.low)


def sha256(data):
    return hashlib.sha256(data).digest()


def string(text):
    return struct.pack('<I', len(text)) + text


class Digest:
    """One of the two algorithms of seal.md."""

    def __init__(self, algorithm=1, key=b''):
        self.algorithm, self.key = algorithm, key

    def __call__(self, seed, data):
        if self.algorithm == 1:
            return xxh3_128(seed + bytes(data))
        return hashlib.blake2b(seed + bytes(data), digest_size=16, key=self.key).digest()

    def probe(self):
        return self(sha256(b'baton.digest-probe\0'), b'')


# ---- identity -------------------------------------------------------------------------------------------------------


class Content:
    """The five fields that say what a bundle is."""

    def __init__(self, model, layout, scope, prefix, boundary):
        self.model, self.layout, self.scope, self.prefix, self.boundary = model, layout, scope, prefix, boundary

    @classmethod
    def of(cls, model, layout, salt, tokens):
        scope = sha256(b'baton.scope\0' + string(salt))
        h = sha256(b'baton.prefix.root\0' + scope)
        for i in range(0, len(tokens), BLOCK):
            block = tokens[i:i + BLOCK]
            h = sha256(b'baton.prefix.block\0' + h + struct.pack('<%dI' % (1 + len(block)), len(block), *block))
        return cls(model, layout, scope, h, len(tokens))

    def pack(self):
        return self.model + self.layout + self.scope + self.prefix + struct.pack('<Q', self.boundary)

    def key(self):
        return sha256(b'baton.content\0' + self.pack())


class Shape:
    """What this peer knows of the layout: state parts (layer, component, bytes) in layout order, bytes of each group's block."""

    def __init__(self, parts, groups):
        self.parts, self.groups = parts, groups

    def keys(self, boundary):
        """Part keys of a bundle at `boundary` and their bytes; full-attention groups only."""
        keys = {i: size for i, (_, _, size) in enumerate(self.parts)}
        for g, size in enumerate(self.groups):
            for b in range(-(-boundary // BLOCK)):
                keys[(g + 1 << 32) + b] = size
        return keys


class Identity:
    """Digests of the parts of one token history."""

    def __init__(self, digest, shape, model, layout, tokens, salt=EMPTY_SALT):
        self.digest, self.shape, self.tokens = digest, shape, tokens
        self._of = lambda n: Content.of(model, layout, salt, tokens[:n])
        self.content = self._of(len(tokens))

    def seed(self, key):
        if key < 1 << 32:
            layer, component, _ = self.shape.parts[key]
            return sha256(b'baton.state-part\0' + self.content.key() + struct.pack('<I', layer) + string(component))
        group, block = (key >> 32) - 1, key & 0xffffffff
        return sha256(b'baton.kv-block\0' + self._of(BLOCK * (block + 1)).key() + struct.pack('<I', group))

    def of(self, key, data):
        return self.digest(self.seed(key), data)

    def root(self, digests):
        return self.digest(sha256(b'baton.block-root\0' + struct.pack('<Q', len(digests))), b''.join(digests))


# ---- records --------------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise ValueError('record ends at byte %d, %d wanted at %d' % (len(self.data), n, self.at))
        self.at += n
        return self.data[self.at - n:self.at]

    def unpack(self, form):
        values = struct.unpack('<' + form, self.take(struct.calcsize('<' + form)))
        return values[0] if len(values) == 1 else values

    def string(self):
        return self.take(self.unpack('I'))

    def end(self):
        if self.at != len(self.data):
            raise ValueError('%d bytes left over' % (len(self.data) - self.at))


class Seal:
    """Fields by name, so that a lie can be told about any one and everything else stays in order."""

    FIELDS = [('magic', '4s'), ('version', 'H'), ('algorithm', 'B'), ('reserved', 'B'), ('length', 'I'),
              ('state_count', 'I'), ('block_count', 'I'), ('reserved2', 'I'), ('model', '32s'), ('layout', '32s'),
              ('scope', '32s'), ('prefix', '32s'), ('boundary', 'Q'), ('state_id', '16s'), ('parent', '16s'),
              ('producer', '16s'), ('epoch', '16s'), ('block_root', '16s')]

    @classmethod
    def parse(cls, data):
        self, reader = cls(), Reader(data)
        for name, form in cls.FIELDS:
            setattr(self, name, reader.unpack(form))
        self.digests = [reader.take(16) for _ in range(self.state_count)]
        if reader.take(32) != sha256(data[:-32]):
            raise ValueError('the seal does not match its checksum')
        reader.end()
        return self

    def pack(self, checksum=None):
        body = b''.join(struct.pack('<' + form, getattr(self, name)) for name, form in self.FIELDS)
        body += b''.join(self.digests)
        return body + (sha256(body) if checksum is None else checksum)


class Hello:
    FIELDS = [('version', 'I'), ('node', '16s'), ('epoch', '16s'), ('model', '32s'), ('layout', '32s'),
              ('algorithm', 'B'), ('probe', '16s')]

    @classmethod
    def parse(cls, data):
        self, reader = cls(), Reader(data)
        for name, form in cls.FIELDS:
            setattr(self, name, reader.unpack(form))
        self.summary = reader.string()
        reader.end()
        return self

    def pack(self):
        return b''.join(struct.pack('<' + form, getattr(self, name)) for name, form in self.FIELDS) + string(self.summary)


class Ask:
    @classmethod
    def make(cls, content, tokens, attempt=1):
        self = cls()
        self.attempt, self.content, self.tokens = attempt, content, list(tokens)
        self.boundary, self.count = content.boundary, len(tokens)
        self.hint, self.hint_flag, self.hint_boundary, self.hint_endpoint = b'', 0, 0, b''
        self.wait_ms, self.label, self.blocks, self.join_key = 20000, b'', 1, bytes(16)
        return self

    @classmethod
    def parse(cls, data):
        self, r = cls(), Reader(data)
        self.attempt = r.unpack('Q')
        model, layout, scope, prefix, self.boundary = r.unpack('32s32s32s32sQ')
        self.content = Content(model, layout, scope, prefix, self.boundary)
        self.count = r.unpack('I')
        self.tokens = list(struct.unpack('<%dI' % self.count, r.take(4 * self.count)))
        self.hint_flag = r.unpack('B')
        self.hint_boundary, self.hint_endpoint = (r.unpack('Q'), r.string()) if self.hint_flag else (0, b'')
        self.wait_ms, self.label = r.unpack('Q'), r.string()
        self.blocks, self.join_key = r.unpack('B'), r.take(16)
        r.end()
        return self

    def pack(self):
        c = self.content
        out = struct.pack('<Q', self.attempt) + c.model + c.layout + c.scope + c.prefix
        out += struct.pack('<QI', self.boundary, self.count) + struct.pack('<%dI' % len(self.tokens), *self.tokens)
        out += struct.pack('<B', self.hint_flag)
        if self.hint_flag:
            out += struct.pack('<Q', self.hint_boundary) + string(self.hint_endpoint)
        return out + struct.pack('<Q', self.wait_ms) + string(self.label) + struct.pack('<B', self.blocks) + self.join_key


class Offer:
    """`groups`: lists of digests; `parts`: [key, region, offset, bytes]."""

    @classmethod
    def parse(cls, data):
        self, r = cls(), Reader(data)
        self.attempt, self.epoch, self.state_id, self.lease_ms = r.unpack('Q16s16sQ')
        self.seal = r.string()
        self.groups = [[r.take(16) for _ in range(r.unpack('I'))] for _ in range(r.unpack('I'))]
        self.parts = [list(r.unpack('QIQQ')) for _ in range(r.unpack('I'))]
        self.not_computed = r.unpack('Q')
        if xxh3_64(data[:r.at]) != r.unpack('Q'):
            raise ValueError('the offer does not match its checksum')
        r.end()
        self.seal_length = self.group_count = self.part_count = self.checksum = self.digest_counts = None
        return self

    def pack(self):
        pick = lambda lie, truth: truth if lie is None else lie
        out = struct.pack('<Q16s16sQ', self.attempt, self.epoch, self.state_id, self.lease_ms)
        out += struct.pack('<I', pick(self.seal_length, len(self.seal))) + self.seal
        out += struct.pack('<I', pick(self.group_count, len(self.groups)))
        for digests in self.groups:
            out += struct.pack('<I', pick(self.digest_counts, len(digests))) + b''.join(digests)
        out += struct.pack('<I', pick(self.part_count, len(self.parts)))
        out += b''.join(struct.pack('<QIQQ', *p) for p in self.parts) + struct.pack('<Q', self.not_computed)
        return out + struct.pack('<Q', pick(self.checksum, xxh3_64(out)))


class Blocks:
    """`blocks`: [key, digest, region, offset, bytes]."""

    @classmethod
    def parse(cls, data):
        self, r = cls(), Reader(data)
        self.attempt, self.epoch, self.state_id, self.lease_ms = r.unpack('Q16s16sQ')
        self.blocks = [list(r.unpack('Q16sIQQ')) for _ in range(r.unpack('I'))]
        if xxh3_64(data[:r.at]) != r.unpack('Q'):
            raise ValueError('BLOCKS does not match its checksum')
        r.end()
        self.count = self.checksum = None
        return self

    def pack(self):
        out = struct.pack('<Q16s16sQ', self.attempt, self.epoch, self.state_id, self.lease_ms)
        out += struct.pack('<I', len(self.blocks) if self.count is None else self.count)
        out += b''.join(struct.pack('<Q16sIQQ', *b) for b in self.blocks)
        return out + struct.pack('<Q', xxh3_64(out) if self.checksum is None else self.checksum)


def pack_ranges(ranges, count=None):
    """READ and DATA: [(state_id, key, offset, bytes)]."""
    out = struct.pack('<I', len(ranges) if count is None else count)
    return out + b''.join(struct.pack('<16sQQQ', *r) for r in ranges)


def parse_ranges(data):
    r = Reader(data)
    ranges = [r.unpack('16sQQQ') for _ in range(r.unpack('I'))]
    r.end()
    return ranges


def pack_arena(sizes, count=None):
    return struct.pack('<I', len(sizes) if count is None else count) + struct.pack('<%dQ' % len(sizes), *sizes)


def parse_arena(data):
    r = Reader(data)
    sizes = [r.unpack('Q') for _ in range(r.unpack('I'))]
    r.end()
    return sizes


def parse_error(data):
    r = Reader(data)
    reason, text = r.string(), r.string()
    r.end()
    return reason.decode(), text.decode('utf-8', 'replace')


# ---- frames ---------------------------------------------------------------------------------------------------------


def frame(kind, payload=b'', **lies):
    """One frame; `lies` replace fields of its header: magic, type, flags, length, payload_sum, header_sum."""
    head = lies.get('magic', MAGIC) + struct.pack('<HHIQ', lies.get('type', kind), lies.get('flags', 0),
                                                  lies.get('length', len(payload)),
                                                  lies.get('payload_sum', xxh3_64(payload)))
    return head + struct.pack('<I', lies.get('header_sum', xxh3_64(head) & 0xffffffff)) + payload


class Closed(Exception):
    """The other side closed the connection."""


def unix_address(endpoint):
    """What `shm:PATH` and `shm:@NAME` bind and connect: an abstract name is a zero byte and NAME."""
    address = endpoint.split(':', 1)[1]
    return '\0' + address[1:] if address.startswith('@') else address


class Wire:
    """One connection. Every wait ends: a peer that says nothing raises TimeoutError."""

    def __init__(self, sock, timeout=20):
        self.sock = sock
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(timeout)

    @classmethod
    def connect(cls, endpoint, timeout=20):
        if endpoint.startswith('shm:'):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(unix_address(endpoint))
            return cls(sock, timeout)
        host, port = endpoint.split(':')[1:]
        return cls(socket.create_connection((host, int(port)), timeout), timeout)

    def send_raw(self, data, fds=()):
        """`fds` go with the first byte."""
        try:
            if fds:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('%di' % len(fds), *fds))]
                self.sock.sendmsg([data[:1]], rights)
                data = data[1:]
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed()

    def send(self, kind, payload=b'', **lies):
        self.send_raw(frame(kind, payload, **lies))

    def read(self, n):
        out = bytearray()
        while len(out) < n:
            try:
                piece = self.sock.recv(n - len(out))
            except ConnectionResetError:
                raise Closed()
            if not piece:
                raise Closed()
            out += piece
        return bytes(out)

    def receive(self):
        head = self.read(24)
        magic, kind, flags, length, payload_sum, header_sum = struct.unpack('<4sHHIQI', head)
        if magic != MAGIC or flags or header_sum != xxh3_64(head[:20]) & 0xffffffff or length > 67108864:
            raise ValueError('a frame header that the documents do not allow: %s' % head.hex())
        payload = self.read(length)
        if xxh3_64(payload) != payload_sum:
            raise ValueError('a payload that does not match its checksum')
        return kind, payload

    def receive_arena(self):
        """The first frame of a source over shm: [(size, descriptor)] of its regions."""
        head, fds, _, _ = socket.recv_fds(self.sock, 1, 253)
        if not head:
            raise Closed()
        head += self.read(23)
        kind, _, length = struct.unpack_from('<HHI', head, 4)
        payload = self.read(length)
        if head != frame(kind, payload)[:24]:
            raise ValueError('an ARENA header that the documents do not allow: %s' % head.hex())
        if kind == ERROR:
            raise Refused(*parse_error(payload))
        sizes = parse_arena(payload)
        if kind != ARENA or len(fds) != len(sizes):
            raise ValueError('%s with %d descriptors for %d regions' % (NAMES.get(kind, kind), len(fds), len(sizes)))
        return list(zip(sizes, fds))

    def expect(self, kind):
        got, payload = self.receive()
        if got == ERROR:
            raise Refused(*parse_error(payload))
        if got != kind:
            raise ValueError('%s expected, %s came' % (NAMES[kind], NAMES.get(got, got)))
        return payload

    def close(self):
        try:
            self.sock.close()
        except OSError:
            pass


class Refused(Exception):
    """The other side sent an ERROR frame."""

    def __init__(self, reason, text):
        super().__init__('%s: %s' % (reason, text))
        self.reason, self.text = reason, text


def deadline(seconds):
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()
