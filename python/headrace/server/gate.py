"""What every request passes: an id, checks of Host and Origin, a line in the log, metrics."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.quoting import quoted
from headrace.server.errors import ApiError
from headrace.server.replies import error_reply

if TYPE_CHECKING:
    from headrace.server.state import ServerState

logger = logging.getLogger("headrace.server")

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Gate:
    """Middleware around the whole app.

    A page of another site may not use the API of a server on this machine, neither by a request
    across origins nor by a name that resolves to 127.0.0.1: Origin must be the server's own or an
    allowed one, and Host an allowed name.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state
        hosts = state.config.allowed_hosts
        self._names = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        own_state: dict[str, Any] = scope.setdefault("state", {})
        request_id = own_state["request_id"] = _request_id(headers)
        start = time.monotonic()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer["x-request-id"] = answer["request-id"] = request_id
                for name, value in _HEADERS.items():
                    answer.setdefault(name, value)
            await send(message)

        try:
            self._check_origin(headers)
            await self._app(scope, receive, send_with_headers)
        except ApiError as error:
            await error_reply(error, scope["path"])(scope, receive, send_with_headers)
        finally:
            self._note(scope, status, time.monotonic() - start)

    def _check_origin(self, headers: Headers) -> None:
        config = self._state.config
        host = headers.get("host", "")
        if self._names is not None and _host_name(host) not in self._names:
            raise ApiError(
                f"this server is not called {quoted(host)}: name it by --allowed-hosts",
                403,
                code="host_not_allowed",
            )
        origin = headers.get("origin")
        if origin is None or "*" in config.allowed_origins or origin in config.allowed_origins:
            return
        if origin.partition("://")[2] != host or not host:
            raise ApiError(
                f"pages of {quoted(origin)} may not call this server: allow it by "
                "--allowed-origins",
                403,
                code="origin_not_allowed",
            )

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        facts = scope["state"].get("facts", {})
        path = getattr(scope.get("endpoint"), "path", "other")
        if facts.get("gone"):
            status = 499  # nginx's word for a client that has gone
        self._state.metrics.request(path, status, seconds)
        is_page = path == "/" or path.startswith("/page/")
        if self._state.config.access_log and not (is_page and status < 400):
            shown = "".join(f" {name}={value}" for name, value in facts.items())
            logger.info(
                "%s %s %s %d %.3fs%s",
                scope["state"]["request_id"],
                scope["method"],
                quoted(scope["path"])[1:-1],
                status,
                seconds,
                shown,
            )


def _request_id(headers: Headers) -> str:
    """The client's, if it is fit for a log and a header."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
