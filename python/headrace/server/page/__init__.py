"""The chat page at /: files of this folder, read once, under fixed names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from headrace.server.endpoint import Call, Endpoint, Handler

if TYPE_CHECKING:
    from headrace.server.state import ServerState

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    **{
        f"/page/{name}": (name, "text/javascript; charset=utf-8")
        for name in ("app.js", "api.js", "markdown.js", "store.js", "view.js")
    },
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Nothing but the page's own files runs, whatever a model writes.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-cache",
}


def page_routes(state: ServerState) -> list[BaseRoute]:
    """The page itself asks for no key; what it calls does."""
    folder = Path(__file__).parent
    return [
        Route(
            path,
            Endpoint(state, path, _file((folder / name).read_bytes(), kind), access="open"),
            methods=["GET"],
        )
        for path, (name, kind) in _FILES.items()
    ]


def _file(data: bytes, kind: str) -> Handler:
    async def answer(_: Call) -> ASGIApp:
        return Response(data, headers=_HEADERS, media_type=kind)

    return answer
