"""One path of the API: who may call it, its body, and a client that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted
from headrace.server.errors import ApiError, internal_error
from headrace.server.replies import ClientStalled, error_reply

if TYPE_CHECKING:
    from headrace.server.state import ServerState

logger = logging.getLogger("headrace.server")

_PARSED_ON_LOOP = 1 << 18  # bytes of JSON; more are parsed in a thread


@dataclass(slots=True)
class Call:
    """A request on its way through the server.

    body: the parsed JSON, where the endpoint reads it.
    held: what is given back when the answer has ended, or the client has gone.
    """

    state: ServerState
    http: Request
    held: contextlib.AsyncExitStack
    body: Any = None
    facts: dict[str, Any] = field(default_factory=dict)  # for the line in the log

    @property
    def id(self) -> str:
        request_id: str = self.http.state.request_id
        return request_id


Handler = Callable[[Call], Awaitable[ASGIApp]]


class Endpoint:
    """An ASGI app around a handler, which is cancelled when its client goes away.

    path: for metrics. access: "user" asks for an API key if there are any, "admin" for an admin
    key, "open" for none. reads: "json" gives the handler Call.body; "stream" leaves the body to
    the handler, which then isn't cancelled early.
    """

    def __init__(
        self,
        state: ServerState,
        path: str,
        handler: Handler,
        *,
        access: Literal["user", "admin", "open"] = "user",
        reads: Literal["json", "nothing", "stream"] = "nothing",
    ) -> None:
        self.path = path
        self._state = state
        self._handler = handler
        self._access = access
        self._reads = reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        async with contextlib.AsyncExitStack() as held:
            call = Call(self._state, request, held)
            request.state.facts = call.facts
            try:
                self._check_key(request)
                if self._reads == "json":
                    take = held.enter_context(self._state.bodies.share())
                    call.body = await _read_json(request, self._state, take)
                work = self._answer(call, scope, receive, send)
                if self._reads == "stream":
                    await work
                else:
                    await while_connected(receive, work)
            except (ApiError, ProtocolError) as error:
                own = ApiError.of(error) if isinstance(error, ProtocolError) else error
                await error_reply(own, self.path)(scope, receive, send)
            except (ClientStalled, ClientDisconnect):
                call.facts["gone"] = True

    def _check_key(self, request: Request) -> None:
        if self._access == "admin":
            self._state.guard.check_admin(request.headers)
        elif self._access == "user":
            self._state.guard.check_user(request.headers)

    async def _answer(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._handler(call)
        except (ApiError, ProtocolError, ClientDisconnect):
            raise
        except Exception as error:
            raise internal_error(call.id, error) from error
        await reply(scope, receive, send)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs `work`; cancels it when the client goes away, and raises ClientDisconnect then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        was_done = task.done()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
    if not was_done:
        raise ClientDisconnect
    task.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_json(request: Request, state: ServerState, take: Callable[[int], None]) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            f"send JSON with the header 'Content-Type: application/json', got {quoted(kind)}",
            415,
            code="unsupported_media_type",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError("send the body without a Content-Encoding", 415, code="unsupported_encoding")
    config = state.config
    data = await read_body(request, config.max_body_bytes, config.body_seconds, take)
    if len(data) > _PARSED_ON_LOOP:
        return await asyncio.to_thread(_parse_json, data)
    return _parse_json(data)


async def read_body(
    request: Request, max_bytes: int, seconds: float, take: Callable[[int], None]
) -> bytes:
    """Raises ApiError: 413 for a longer body, 408 for one that takes longer to come, and what
    `take` raises, which is told of all bytes that come (BodyBudget.share)."""
    too_long = ApiError(
        f"the body of a request may have at most {max_bytes} bytes", 413, code="body_too_large"
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > max_bytes):
        raise too_long

    async def read() -> bytes:
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > max_bytes:
                raise too_long
            take(len(piece))
        return bytes(data)

    try:
        return await asyncio.wait_for(read(), seconds)
    except asyncio.TimeoutError:
        raise ApiError(
            f"the body of the request hasn't come within {seconds:g} s", 408, code="body_timeout"
        ) from None


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ApiError(f"the body is not JSON: {reason[:200]}", code="invalid_json") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
