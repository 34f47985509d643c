"""A server process: its socket, its models, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from headrace.server.app import create_app
from headrace.server.config import ServerConfig
from headrace.server.models import ModelRegistry
from headrace.server.slow_headers import timed_protocol

logger = logging.getLogger("headrace.server")

_BACKLOG = 2048
_MAX_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen, and how a server there ends.

    port 0: any free one. drain_seconds: what SIGTERM leaves to the requests that run.
    header_seconds: for the head of a request to come; then its connection is closed.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    root_path: str = ""
    drain_seconds: int = 60
    header_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.header_seconds > 0:
            raise ValueError(f"header_seconds must be above 0, got {self.header_seconds}")

    def bind(self) -> socket.socket:
        """Raises OSError. Connections are accepted later, when the models are there."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self.host, self.port))
        except BaseException:
            bound.close()
            raise
        return bound


def run_server(
    listener: Listener,
    config: ServerConfig,
    registry: ModelRegistry,
    load: Callable[[], Awaitable[object]],
) -> None:
    """Serves until SIGTERM or Ctrl-C, which let the requests that run come to their end first.

    load: brings the first models into the registry. Raises OSError if the address can't be had,
    and what `load` raises.
    """
    with listener.bind() as bound, _term_raises():
        asyncio.run(_serve(listener, config, registry, load, bound))


async def _serve(
    listener: Listener,
    config: ServerConfig,
    registry: ModelRegistry,
    load: Callable[[], Awaitable[object]],
    bound: socket.socket,
) -> None:
    asyncio.get_running_loop().set_exception_handler(FewAccepts())
    try:
        await load()
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(config, registry),
                http=timed_protocol(listener.header_seconds),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                root_path=listener.root_path,
                ssl_keyfile=listener.ssl_keyfile,
                ssl_certfile=listener.ssl_certfile,
                timeout_graceful_shutdown=listener.drain_seconds,
                h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
            )
        )
        scheme = "https" if listener.ssl_certfile else "http"
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        names = ", ".join(model.names[0] for model in registry.models)
        bound.listen(_BACKLOG)  # whoever reads the next line may connect
        logger.info("serving %s on %s://%s:%d", names, scheme, shown, port)
        await server.serve(sockets=[bound])
    finally:
        await registry.close()


class FewAccepts:
    """asyncio's handler of exceptions, but for connections that can't be accepted: of those it
    would write thousands of tracebacks a second."""

    _SECONDS = 10.0

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _NO_RESOURCES):
            loop.default_exception_handler(context)
        elif time.monotonic() - self._last >= self._SECONDS:
            self._last = time.monotonic()
            logger.error("no connection can be accepted: %s", error.strerror)


_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _term_raises:
    """SIGTERM ends a load, and afterwards the process in peace: uvicorn, which drains on it,
    raises it once more when it is done."""

    def __enter__(self) -> None:
        def end(number: int, frame: FrameType | None) -> None:
            raise SystemExit(0)

        self._before = signal.signal(signal.SIGTERM, end)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
