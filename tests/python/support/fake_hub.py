"""A Hugging Face hub on localhost: just enough for huggingface_hub's snapshot_download."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Repositories by id, each a folder. `fetched` lists the files that were downloaded."""

    def __init__(self, repositories: dict[str, Path]) -> None:
        self.repositories = repositories
        self.fetched: list[str] = []
        self.revisions: list[str] = []
        self.url = ""


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._answer_api("/".join(parts[2:4]), parts[4:], body)
        elif len(parts) > 4 and parts[2] == "resolve":
            self._answer_file("/".join(parts[:2]), "/".join(parts[4:]), body)
        else:
            self._send(404, {}, b"{}", body)

    def _answer_api(self, name: str, rest: list[str], body: bool) -> None:
        folder = self.hub.repositories.get(name)
        if folder is None:
            headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            self._send(404, headers, b'{"error": "Repository not found"}', body)
            return
        files = sorted(
            str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()
        )
        answer: Any
        if rest[:1] == ["tree"]:
            answer = [
                {
                    "type": "file",
                    "path": file,
                    "oid": _oid(folder / file),
                    "size": _size(folder / file),
                }
                for file in files
            ]
        else:
            self.hub.revisions.append(rest[1] if len(rest) > 1 else "")
            answer = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": f} for f in files]}
        self._send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode(), body)

    def _answer_file(self, name: str, file: str, body: bool) -> None:
        path = self.hub.repositories.get(name, Path("/nonexistent")) / file
        if not path.is_file():
            self._send(404, {"X-Error-Code": "EntryNotFound"}, b"", body)
            return
        if body:
            self.hub.fetched.append(file)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{_oid(path)}"', "Accept-Ranges": "bytes"}
        self._send(200, headers, path.read_bytes(), body)

    def _send(self, status: int, headers: dict[str, str], data: bytes, body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


def _oid(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size
