"""One path of the API: who may call it, its body, and a client that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.protocol.errors import ProtocolError
from headrace.protocol.json_reader import TooManyValues, read_json, refuse_constant
from headrace.quoting import quoted
from headrace.server.errors import ApiError, internal_error, no_memory
from headrace.server.replies import (
    STEP_LEVELS,
    ClientStalled,
    Writer,
    error_reply,
    json_bytes,
    json_in_steps,
    json_reply,
)

if TYPE_CHECKING:
    from headrace.server.state import ServerState

logger = logging.getLogger("headrace.server")

_READ_ON_LOOP = 1 << 16  # bytes of JSON; more are read by a thread
_MADE_ON_LOOP = 1 << 11  # values of an answer; more are written by a thread
T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """A request on its way through the server.

    body: the parsed JSON, where the endpoint reads it. large: it takes long to be looked through.
    held: what is given back when the answer has ended, or the client has gone.
    """

    state: ServerState
    http: Request
    held: contextlib.AsyncExitStack
    body: Any = None
    large: bool = False
    facts: dict[str, Any] = field(default_factory=dict)  # for the line in the log

    @property
    def id(self) -> str:
        request_id: str = self.http.state.request_id
        return request_id

    async def read(self, read: Callable[[Any], T]) -> T:
        """What `read` makes of the body, while the event loop goes on if it is a large one."""
        if not self.large:
            return read(self.body)
        return await self.state.heavy.run(lambda: read(self.body))

    async def reply(
        self,
        make: Callable[[], Any],
        values: int,
        headers: Mapping[str, str] | None = None,
        levels: int = STEP_LEVELS,
    ) -> Response:
        """The answer that `make` makes, of about so many values, while the event loop goes on.
        levels: json_in_steps'."""
        if values <= _MADE_ON_LOOP:
            return json_reply(make(), headers=headers)
        data = await self.state.heavy.run(lambda: json_in_steps(make(), levels))
        return Response(data, 200, dict(headers or {}), "application/json")

    async def written(
        self, make: Callable[[Writer], bytes], values: int, levels: int = STEP_LEVELS
    ) -> bytes:
        """What `make` writes of a stream. Other requests have their turns before it, or meanwhile,
        if there are values: how many log-probabilities are written. levels: json_in_steps'."""
        if values > _MADE_ON_LOOP:
            return await self.state.heavy.run(lambda: make(partial(json_in_steps, levels=levels)))
        if values:  # many updates may be there at once
            await asyncio.sleep(0)
        return make(json_bytes)


Handler = Callable[[Call], Awaitable[ASGIApp]]
Access = Literal["user", "admin", "open"]
Reads = Literal["json", "nothing", "stream"]


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
        access: Access = "user",
        reads: Reads = "nothing",
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
                    await self._read_json(call, take)
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

    async def _read_json(self, call: Call, take: Callable[[int], None]) -> None:
        try:
            await _read_json(call, take)
        except MemoryError:
            raise no_memory() from None

    async def _answer(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._handler(call)
        except (ApiError, ProtocolError, ClientDisconnect):
            raise
        except MemoryError:
            raise no_memory() from None
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


async def _read_json(call: Call, take: Callable[[int], None]) -> None:
    request, config = call.http, call.state.config
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            f"send JSON with the header 'Content-Type: application/json', got {quoted(kind)}",
            415,
            code="unsupported_media_type",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError("send the body without a Content-Encoding", 415, code="unsupported_encoding")
    data = await read_body(request, config.max_body_bytes, config.body_seconds, take)
    call.large = len(data) > _READ_ON_LOOP
    if call.large:
        most = config.max_body_values
        call.body = await call.state.heavy.run(lambda: _parse_json(data, most))
    else:
        call.body = _parse_json(data, None)


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


def _parse_json(data: bytes, most: int | None) -> Any:
    """most: values; None: it is too short for many, and parsed in one go."""
    try:
        text = data.decode("utf-8")
        if most is not None:
            return read_json(text, most)
        return json.loads(text, parse_constant=refuse_constant)
    except TooManyValues as error:
        raise ApiError(f"the body is too large: {error}", 413, code="body_too_large") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ApiError(f"the body is not JSON: {reason[:200]}", code="invalid_json") from None
