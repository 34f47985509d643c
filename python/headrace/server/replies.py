"""Answers: JSON objects, and streams of server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.server.errors import ApiError, internal_error


def json_bytes(value: Any) -> bytes:
    # A lone surrogate of a client's text has no UTF-8; it comes back as "?".
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


STEP_LEVELS = 4  # as deep as log-probabilities stand in most answers
_STEP_ITEMS = 16


def json_in_steps(value: Any, levels: int = STEP_LEVELS) -> bytes:
    """json_bytes of a large value, in steps between which other threads have their turns. levels:
    of objects and arrays that are taken apart; below them a step writes an array's items by 16."""
    out = bytearray()
    _write(value, out, levels)
    return bytes(out)


def _write(value: Any, out: bytearray, levels: int) -> None:
    if isinstance(value, dict) and levels:
        out += b"{"
        for place, (name, item) in enumerate(value.items()):
            out += (b"," if place else b"") + json_bytes(str(name)) + b":"
            _write(item, out, levels - 1)
        out += b"}"
    elif isinstance(value, list):
        out += b"["
        step = 1 if levels and value and isinstance(value[0], (dict, list)) else _STEP_ITEMS
        for place in range(0, len(value), step):
            out += b"," if place else b""
            if step == 1:
                _write(value[place], out, levels - 1)
            else:
                out += json_bytes(value[place : place + step])[1:-1]
        out += b"]"
    else:
        out += json_bytes(value)


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, dict(headers or {}), "application/json")


def error_reply(error: ApiError, path: str) -> Response:
    return json_reply(error.body(path), error.status, error.headers())


Writer = Callable[[Any], bytes]  # json_bytes or json_in_steps


def event(data: Any, name: str | None = None, write: Writer = json_bytes) -> bytes:
    """One server-sent event that carries a JSON object."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + write(data) + b"\n\n"


def events(pieces: Iterable[Any], write: Writer) -> bytes:
    """An event for each."""
    return b"".join(event(piece, write=write) for piece in pieces)


class ClientStalled(Exception):
    """The client has read nothing of a stream for too long."""


class EventStream:
    """An ASGI answer made of server-sent events.

    send_seconds: how long the client may take to accept an event.
    failed: makes the last event of a stream that breaks off.
    """

    def __init__(
        self,
        events: AsyncIterator[bytes],
        send_seconds: float,
        failed: Callable[[ApiError], bytes],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._events = events
        self._send_seconds = send_seconds
        self._failed = failed
        self._headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **(headers or {}),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ClientStalled."""
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for data in self._events:
                await self._send(send, data, more=True)
        except ApiError as error:
            await self._send(send, self._failed(error), more=True)
        except (ClientStalled, ClientDisconnect):
            raise
        except Exception as error:
            failure = internal_error(scope["state"]["request_id"], error)
            await self._send(send, self._failed(failure), more=True)
        await self._send(send, b"", more=False)

    async def _send(self, send: Send, data: bytes, more: bool) -> None:
        with _time_limit(self._send_seconds):
            await send({"type": "http.response.body", "body": data, "more_body": more})


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises ClientStalled in the task that is still in the block then. Cheaper than wait_for,
    which makes a task of its own for each event."""
    task = asyncio.current_task()
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        if task is not None:
            task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        yield
    except asyncio.CancelledError:
        if expired:
            raise ClientStalled from None
        raise
    finally:
        timer.cancel()
