"""The chat page at /: the files of static/, read once, under fixed names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from headrace.server.endpoint import Call, Endpoint, Handler

if TYPE_CHECKING:
    from headrace.server.state import ServerState

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but the page's own files runs, whatever a model writes. blob: pictures that the page has
# made of what was chosen, dropped or pasted.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-cache",
}


def page_files() -> dict[str, Path]:
    """The page's files by their paths on the server."""
    files = {
        f"/page/{file.relative_to(_FOLDER).as_posix()}": file
        for file in sorted(_FOLDER.rglob("*"))
        if file.suffix in _TYPES
    }
    return {"/": files.pop("/page/index.html"), **files}


def page_routes(state: ServerState) -> list[BaseRoute]:
    """The page itself asks for no key; what it calls does."""
    return [
        Route(
            path,
            Endpoint(state, path, _file(file.read_bytes(), _TYPES[file.suffix]), access="open"),
            methods=["GET"],
        )
        for path, file in page_files().items()
    ]


def _file(data: bytes, kind: str) -> Handler:
    async def answer(_: Call) -> ASGIApp:
        return Response(data, headers=_HEADERS, media_type=kind)

    return answer
