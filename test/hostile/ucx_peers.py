"""Both sides of a conversation over ucx, with UCX itself reached through its C library."""

import ctypes
import os
import select
import socket
import struct
import threading
import time

import wire as w
from peers import Receiver, Source

PIECE = 65536
STATUS, INPROGRESS = ctypes.c_int8, 1  # ucs_status_t
# A sender must not ask for answers below the messages (wire.md): UCX 1.13 ends a receiver whose peer leaves before it
# has them.
POLITE = {'RNDV_THRESH': 'inf', 'RESOLVE_REMOTE_EP_ID': 'n', 'PROTO_ENABLE': 'n'}
# What the library reads once, when it is loaded, and no worker that is started later shall inherit.
_SETTINGS = {'UCX_HANDLE_ERRORS': 'none', 'UCX_MEM_EVENTS': 'n', 'UCX_LOG_LEVEL': 'fatal'}


def load():
    """The library, or OSError."""
    os.environ.update(_SETTINGS)
    try:
        library = ctypes.CDLL('libucp.so.0')
    finally:
        for name in _SETTINGS:
            del os.environ[name]
    p, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
            ('ucp_config_read', STATUS, [ctypes.c_char_p, ctypes.c_char_p, p]),
            ('ucp_config_modify', STATUS, [p, ctypes.c_char_p, ctypes.c_char_p]),
            ('ucp_config_release', None, [p]),
            ('ucp_init_version', STATUS, [ctypes.c_uint, ctypes.c_uint, p, p, p]),
            ('ucp_worker_create', STATUS, [p, p, p]), ('ucp_worker_destroy', None, [p]),
            ('ucp_worker_get_address', STATUS, [p, p, p]), ('ucp_worker_release_address', None, [p, p]),
            ('ucp_worker_progress', ctypes.c_uint, [p]), ('ucp_ep_create', STATUS, [p, p, p]),
            ('ucp_ep_close_nbx', p, [p, p]), ('ucp_ep_flush_nbx', p, [p, p]),
            ('ucp_tag_send_nbx', p, [p, ctypes.c_char_p, size, ctypes.c_uint64, p]),
            ('ucp_tag_probe_nb', p, [p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, p]),
            ('ucp_tag_msg_recv_nbx', p, [p, p, size, p, p]),
            ('ucp_request_check_status', STATUS, [p]), ('ucp_request_free', None, [p])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Lost(w.Closed):
    """UCX says that the peer is gone, or takes nothing."""


class Context:
    """One context on the loopback device. `settings`: of UCX, by name."""

    _library, _lock = None, threading.Lock()

    def __init__(self, **settings):
        with Context._lock:
            Context._library = Context._library or load()
        self.lib = Context._library
        config, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        self._good(self.lib.ucp_config_read(None, None, ctypes.byref(config)))
        for name, value in {'NET_DEVICES': 'lo', 'TLS': 'tcp', **POLITE, **settings}.items():
            self._good(self.lib.ucp_config_modify(config, name.encode(), value.encode()))
        # field_mask: features, mt_workers_shared; features: tagged messages.
        params = struct.pack('<QQ', 1 | 32, 1).ljust(48, b'\0') + struct.pack('<i', 1)
        self._good(self.lib.ucp_init_version(1, 10, params.ljust(256, b'\0'), config, ctypes.byref(self.handle)))
        self.lib.ucp_config_release(config)

    def _good(self, status):
        if status != 0:
            raise OSError('UCX: status %d' % status)


_FAILED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(lambda *_: None)


class Endpoint:
    """A worker with at most one endpoint. One thread."""

    def __init__(self, context):
        self.context, self.lib, self.ep = context, context.lib, None
        self.worker = ctypes.c_void_p()
        params = struct.pack('<Qi', 1, 1).ljust(256, b'\0')  # thread mode: serialized
        context._good(self.lib.ucp_worker_create(context.handle, params, ctypes.byref(self.worker)))

    def address(self):
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.context._good(self.lib.ucp_worker_get_address(self.worker, ctypes.byref(address), ctypes.byref(size)))
        out = ctypes.string_at(address, size.value)
        self.lib.ucp_worker_release_address(self.worker, address)
        return out

    def connect(self, address):
        kept = ctypes.create_string_buffer(address)
        params = struct.pack('<QQiiQ', 1 | 2 | 4, ctypes.addressof(kept), 1, 0, ctypes.cast(_FAILED, ctypes.c_void_p).value)
        self.ep = ctypes.c_void_p()
        self.context._good(self.lib.ucp_ep_create(self.worker, params.ljust(256, b'\0'), ctypes.byref(self.ep)))
        self._finish(self.lib.ucp_ep_flush_nbx(self.ep, bytes(128)))

    def send(self, message, tag=1):
        self._finish(self.lib.ucp_tag_send_nbx(self.ep, bytes(message), len(message), tag, bytes(128)))

    def receive(self, gone=lambda: False, timeout=20):
        """The next message."""
        end, info = time.monotonic() + timeout, ctypes.create_string_buffer(16)
        while True:
            self.lib.ucp_worker_progress(self.worker)
            found = self.lib.ucp_tag_probe_nb(self.worker, 0, 0, 1, info)
            if found:
                size = struct.unpack_from('<Q', info.raw, 8)[0]
                buffer = ctypes.create_string_buffer(max(size, 1))
                self._finish(self.lib.ucp_tag_msg_recv_nbx(self.worker, buffer, size, found, bytes(128)))
                return buffer.raw[:size]
            if gone():
                raise w.Closed()
            if time.monotonic() > end:
                raise TimeoutError('no message')

    def idle(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.lib.ucp_worker_progress(self.worker) == 0:
                time.sleep(0.0002)

    def _finish(self, request, timeout=10):
        end = time.monotonic() + timeout
        if request is None:
            return
        if ctypes.c_int64(request).value in range(-128, 0):
            raise Lost('status %d' % ctypes.c_int64(request).value)
        status = INPROGRESS
        while status == INPROGRESS and time.monotonic() < end:
            self.lib.ucp_worker_progress(self.worker)
            status = self.lib.ucp_request_check_status(request)
        if status == INPROGRESS:
            raise TimeoutError('UCX is busy')  # the request goes with the worker
        self.lib.ucp_request_free(request)
        if status != 0:
            raise Lost('status %d' % status)

    def close(self):
        if self.ep:
            by_force = struct.pack('<II', 16, 1).ljust(128, b'\0')  # a request's flags
            request = self.lib.ucp_ep_close_nbx(self.ep, by_force)
            try:
                self._finish(request, 2)
            except (Lost, TimeoutError):
                pass
            self.ep = None
        if self.worker:
            self.lib.ucp_worker_destroy(self.worker)
            self.worker = None


def pack_piece(token, read, index, offset, data):
    return struct.pack('<QQQQ', token, read, index, offset) + bytes(data)


class UcxSource(Source):
    """A Source that sends its bytes as tagged messages."""

    def __init__(self, bundle, digest, context):
        self.context, self.addresses = context, []
        super().__init__(bundle, digest)

    def _listen(self):
        server = socket.create_server(('127.0.0.1', 0))
        return server, 'ucx:127.0.0.1:%d' % server.getsockname()[1]

    def _open(self, wire, lie):
        wire.ucx, wire.token, wire.read_number = None, 0, 0

    def _end(self, wire):
        if wire.ucx:
            wire.ucx.close()

    def _answer(self, wire, lie, kind, payload):
        if kind == w.WORKER:
            assert wire.ucx is None and len(payload) > 8, 'a second WORKER, or no address'
            wire.token, = struct.unpack_from('<Q', payload)
            self.addresses.append(payload)
            wire.ucx = Endpoint(self.context)
            wire.ucx.connect(payload[8:])
            self._say(wire, lie, w.WORKER, b'')
        elif kind == w.READ:
            wire.read_number += 1
            self._send(wire, lie, w.parse_ranges(payload))
        elif kind == w.LANDED:
            assert payload == struct.pack('<Q', wire.read_number), 'LANDED of another READ'
        else:
            return False
        return True

    def _send(self, wire, lie, ranges):
        memory, pieces = lie.memory or self.bundle.memory, []
        for index, (_, key, offset, size) in enumerate(ranges):
            data = bytes(memory[key][offset:offset + size])
            for at in range(0, size, PIECE):
                pieces.append([wire.token, wire.read_number, index, at, data[at:at + PIECE]])
        if lie.step == 'ERROR':
            self._say(wire, lie, w.ERROR, w.string(b'peer_error') + w.string(b'no'))
        for piece in self._tell(lie, 'PIECES', pieces):
            wire.ucx.send(piece if isinstance(piece, bytes) else pack_piece(*piece))
        # What UCX calls sent may still be on its way, and needs this side; the receiver answers when all is there.
        end = time.monotonic() + (0.05 if lie.hang_up else 20)
        while time.monotonic() < end and not select.select([wire.sock], [], [], 0)[0]:
            wire.ucx.idle(0.0005)
        if lie.hang_up:
            raise w.Closed()


class UcxReceiver(Receiver):
    """A Receiver whose bytes come as tagged messages."""

    context = None  # set once for all

    def open(self):
        self.ucx, self.number, self.token = None, 0, int.from_bytes(os.urandom(8), 'little')

    def meet(self):
        self.ucx = Endpoint(self.context)
        self.wire.send(w.WORKER, struct.pack('<Q', self.token) + self.ucx.address())
        assert self._progressing(lambda: self.wire.expect(w.WORKER)) == b'', 'an answer with something in it'

    def _progressing(self, wait):
        """What `wait` returns, while this worker's connections are answered."""
        out = []
        def run():
            try:
                out.append((wait(), None))
            except Exception as e:
                out.append((None, e))
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            self.ucx.idle(0.002)
        if out[0][1]:
            raise out[0][1]
        return out[0][0]

    def ask_for(self, state_id, parts):
        self.number += 1
        self.wire.send(w.READ, w.pack_ranges([(state_id, p[0], 0, p[3]) for p in parts]))

    def take(self, parts):
        missing = {(i, at) for i, p in enumerate(parts) for at in range(0, p[3], PIECE)}
        while missing:
            message = self.ucx.receive(self._left)
            token, number, i, at = struct.unpack_from('<QQQQ', message)
            assert token == self.token and number == self.number and (i, at) in missing, 'a piece nobody asked for'
            key, size = parts[i][0], parts[i][3]
            assert len(message) - 32 == min(PIECE, size - at), 'a piece of another size'
            self.memory.setdefault(key, bytearray(size))[at:at + PIECE] = message[32:]
            missing.remove((i, at))

    def _left(self):
        """Whether the source said something, or is gone: then what it says is an ERROR."""
        if not select.select([self.wire.sock], [], [], 0)[0]:
            return False
        kind, payload = self.wire.receive()
        if kind == w.ERROR:
            raise w.Refused(*w.parse_error(payload))
        raise ValueError('%s in the middle of a READ' % w.NAMES.get(kind, kind))

    def pull(self, state_id, parts):
        if not parts:
            return
        if self.ucx is None:
            self.meet()
        self.ask_for(state_id, parts)
        self.take(parts)
        self.wire.send(w.LANDED, struct.pack('<Q', self.number))

    def close(self):
        super().close()
        if self.ucx:
            self.ucx.close()
            self.ucx = None
