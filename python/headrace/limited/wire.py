"""How a limited process and its parent talk: a kind, a length, and so many bytes."""

from __future__ import annotations

import socket
import struct

HEADER = struct.Struct("<cQ")
COST = struct.Struct("<dQ")  # before a request: CPU seconds, and bytes beyond the usual memory

REQUEST = b"R"
READY = b"S"  # the process has started
ANSWER = b"T"
ERROR = b"E"  # a message
MEMORY = b"M"  # there was not enough


def send(peer: socket.socket, kind: bytes, data: bytes | bytearray) -> None:
    """Raises OSError (TimeoutError by the socket's time-out). Never a SIGPIPE."""
    peer.sendall(HEADER.pack(kind, len(data)), socket.MSG_NOSIGNAL)
    if data:
        peer.sendall(data, socket.MSG_NOSIGNAL)


def receive(peer: socket.socket, limit: int) -> tuple[bytes, bytearray]:
    """Raises EOFError if the peer is gone or says more than `limit` bytes, and OSError."""
    kind, size = HEADER.unpack(_exactly(peer, HEADER.size))
    if size > limit:
        raise EOFError(f"{size} bytes announced, at most {limit} allowed")
    return kind, _exactly(peer, size)


def _exactly(peer: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = peer.recv_into(view)
        if count == 0:
            raise EOFError("the peer is gone")
        view = view[count:]
    return data
