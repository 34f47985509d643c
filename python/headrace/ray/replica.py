"""The deployments of a served application: engines with the API, and who sends them requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.ray.beginnings import beginning_of
from headrace.ray.config import HeadraceConfig
from headrace.ray.engine import load_engine
from headrace.server import ModelRegistry, ServerConfig, create_app
from headrace.server.admission import BodyBudget
from headrace.server.endpoint import read_body, while_connected
from headrace.server.errors import ApiError
from headrace.server.replies import error_reply

_SCOPE = ("http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path",
          "headers", "client", "server")  # fmt: skip


@dataclass(slots=True)
class Forwarded:
    """A request on its way to a replica. prompt: its beginning, by which Ray's router goes."""

    scope: dict[str, Any]
    body: bytes
    prompt: str


class Replica:
    """An engine with the API in front of it."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, config: HeadraceConfig, server: ServerConfig, names: Sequence[str] | None
    ) -> None:
        """Returns when the model is loaded; raises what loading it raises."""

        async def load(model: str, **_: object) -> Any:
            return await asyncio.to_thread(load_engine, config)

        self._registry = ModelRegistry(load)
        await self._registry.load(str(config.model), list(names) if names else None)
        self._app = create_app(server, self._registry)
        self._stuck_seconds = server.stuck_seconds

    async def check_health(self) -> None:
        """Ray Serve asks, and starts another replica where this raises."""
        for model in self._registry.models:
            wrong = model.pulse.wrong(self._stuck_seconds)
            if wrong is not None:
                raise RuntimeError(f"{model.names[0]} {wrong}")

    async def __call__(self, request: Request) -> Response:
        """What Ray Serve's own proxy calls."""
        return _AppReply(self._app)

    async def answer(self, request: Forwarded) -> AsyncIterator[Message]:
        """The messages of the answer, as ASGI has them. Closing it ends the request."""
        scope = {"type": "http", "asgi": {"version": "3.0"}, **request.scope}
        messages: asyncio.Queue[Message | None] = asyncio.Queue(1)
        bodies = [{"type": "http.request", "body": request.body, "more_body": False}]
        left = False  # nobody takes messages any more

        async def receive() -> Message:
            if bodies:
                return bodies.pop()
            return await asyncio.Future()  # a client that goes away cancels all this

        async def send(message: Message | None) -> None:
            if not left:
                await messages.put(message)

        async def run() -> None:
            try:
                await self._app(scope, receive, send)
            finally:
                await send(None)

        running = asyncio.ensure_future(run())
        try:
            while (message := await messages.get()) is not None:
                yield dict(message)
            await running
        finally:
            left = True
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


class Front:
    """Reads requests, so that the router knows how they begin, and sends them on."""

    def __init__(self, replicas: Any, server: ServerConfig) -> None:
        self._replicas = replicas.options(stream=True)
        self._server = server
        self._bodies = BodyBudget(server.max_total_body_bytes)

    async def __call__(self, request: Request) -> Response:
        return _AppReply(self._forward)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        server, request = self._server, Request(scope, receive)
        with contextlib.suppress(ClientDisconnect), self._bodies.share() as take:
            try:
                body = await read_body(request, server.max_body_bytes, server.body_seconds, take)
            except ApiError as error:
                await error_reply(error, scope["path"])(scope, receive, send)
                return
            own = {name: scope[name] for name in _SCOPE if name in scope}
            prompt = await asyncio.to_thread(beginning_of, scope["path"], body)
            await while_connected(receive, self._send(Forwarded(own, body, prompt), send))

    async def _send(self, request: Forwarded, send: Send) -> None:
        messages = self._replicas.answer.remote(request)
        try:
            async for message in messages:
                await send(message)
        except BaseException:
            messages.cancel()
            raise


class _AppReply(Response):
    """A response that an ASGI app gives."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
