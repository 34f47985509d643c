"""Addresses and files: what they give, and what they must not reach."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import MediaError
from headrace.media import MediaAccess, MediaLimits
from headrace.media.sources import web
from headrace.media.sources.data_url import decode_data_url
from headrace.media.sources.load import load_bytes

LIMITS = MediaLimits(max_image_bytes=1000, max_video_bytes=2000, fetch_seconds=5.0)
DATA = b"\x89PNG" + bytes(range(96))


def load(source: Any, access: MediaAccess | None = None, modality: str = "image") -> bytes | None:
    return load_bytes(source, modality, access or MediaAccess(), LIMITS)


def encoded(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def open_files() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def test_bytes_and_paths(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(DATA)
    assert load(DATA) == load(bytearray(DATA)) == load(memoryview(DATA)) == load(file) == DATA
    with pytest.raises(MediaError, match="1001 bytes, more than"):
        load(bytes(1001))
    file.write_bytes(bytes(1001))
    with pytest.raises(MediaError, match="1001 bytes, more than"):
        load(file)
    with pytest.raises(MediaError, match="can't be opened"):
        load(tmp_path / "none.png")
    with pytest.raises(MediaError, match="Is a directory"):
        load(tmp_path)
    assert not [link for link in open_files() if link == str(tmp_path)]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MediaError, match="no regular file"):
        load(tmp_path / "pipe")
    assert load(object()) is None


def test_text_is_no_path(tmp_path: Path) -> None:
    for text in ("a.png", str(tmp_path), "", "ftp://host/a", "javascript:1", "\0"):
        with pytest.raises(MediaError, match=r"pathlib\.Path"):
            load(text)


def test_data_urls() -> None:
    assert load(encoded(DATA)) == DATA
    assert load(encoded(DATA).rstrip("=")) == DATA
    assert load("DATA:IMAGE/PNG;charset=x;BASE64,iVBO Rw==") == b"\x89PNG"
    assert decode_data_url("data:text/plain,a%20b+c", 100) == ("text/plain", b"a b+c")
    assert decode_data_url("data:,x", 100) == ("", b"x")
    assert load(encoded(DATA, "video/mp4"), modality="video") == DATA


def test_escapes_take_little_memory() -> None:
    count = 200_000
    assert decode_data_url("data:,a" + "%41" * count, count + 1)[1] == b"a" + b"A" * count
    for url in ("data:," + "%41" * count, "data:;base64," + "QUFB QUFB " * (count // 8)):
        tracemalloc.start()
        try:
            decode_data_url(url, count)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 12 * count, url[:20]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("data:", "no comma"),
        ("data:image/png;base64", "no comma"),
        ("data:" + "a" * 2000 + ",x", "no comma"),
        ("data:image/png;base64,", "no data"),
        ("data:image/png;base64,@@@@", "no base64"),
        ("data:image/png;base64,A", "no base64"),
        ("data:image/png;base64,é", "outside of ASCII"),
        ("data:im age/png;base64,AAAA", "media type"),
        ("data:image/png;base64," + "A" * 5000, "characters"),
        ("data:image/png;base64," + "A" * 1340, "bytes, more than"),
        ("data:audio/wav;base64,AAAA", "no image"),
        ("data:video/mp4;base64,AAAA", "no image"),
    ],
)
def test_bad_data_urls(url: str, words: str) -> None:
    with pytest.raises(MediaError, match=words):
        load(url)


def test_files_lie_in_the_allowed_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "inner"
    inside.mkdir()
    outside.mkdir()
    (inside / "a b.png").write_bytes(DATA)
    (outside / "secret").write_bytes(b"secret")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    (tmp_path / "entry").symlink_to(inside)
    access = MediaAccess.of(tmp_path / "entry")
    assert load(f"file://{inside}/a%20b.png", access) == DATA
    assert load(f"file://localhost{tmp_path}/entry/a%20b.png", access) == DATA
    for path in (
        f"{inside}/link",
        f"{inside}/folder/secret",
        f"{inside}/../inner/secret",
        f"{inside}/%2e%2e/inner/secret",
        f"{outside}/secret",
        f"{outside}/none",
        "/proc/self/environ",
        "/etc/passwd",
    ):
        with pytest.raises(MediaError, match="not in allowed_local_media_path"):
            load(f"file://{path}", access)
    for url in (f"file://host{inside}/a%20b.png", "file:a", f"file://{inside}/a%00b", "file://"):
        with pytest.raises(MediaError, match="file:///PATH"):
            load(url, access)
    for url, words in (
        ("file://[", "malformed"),
        ("file:///" + "a/" * 9000, "characters"),
        ("file:///\ud800", "is no path"),
    ):
        with pytest.raises(MediaError, match=words):
            load(url, access)
    with pytest.raises(MediaError, match="file:// addresses are off"):
        load(f"file://{inside}/a%20b.png")
    with pytest.raises(ValueError, match="is no folder"):
        MediaAccess.of(tmp_path / "none")


def test_a_link_that_changes_meanwhile_gains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (inside / "a").write_bytes(DATA)
    real = os.open

    def swapped(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith("/in/a"):
            (inside / "a").unlink()
            (inside / "a").symlink_to(tmp_path / "secret")
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(MediaError, match="not in allowed_local_media_path"):
        load(f"file://{inside}/a", MediaAccess.of(inside))


class Server:
    """A web server on 127.0.0.1 that counts the connections it gets."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(f"{self.headers['Host']} {self.path}")
                with contextlib.suppress(OSError):
                    getattr(self, "on_" + self.path.split("/")[1].split("?")[0])()

            def reply(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def on_good(self) -> None:
                self.reply(200, {"Content-Length": str(len(DATA))}, DATA)

            def on_unsized(self) -> None:
                self.reply(200, {}, DATA)

            def on_large(self) -> None:
                self.reply(200, {"Content-Length": "100000000"})

            def on_endless(self) -> None:
                self.reply(200, {})
                while True:
                    self.wfile.write(bytes(1 << 16))

            def on_slow(self) -> None:
                self.send_response(200)
                self.end_headers()
                for _ in range(100):
                    self.wfile.write(b"x")
                    time.sleep(0.05)

            def on_short(self) -> None:
                self.reply(200, {"Content-Length": "50"}, b"x")

            def on_packed(self) -> None:
                self.reply(200, {"Content-Encoding": "gzip"}, b"x")

            def on_missing(self) -> None:
                self.reply(404, {})

            def on_to(self) -> None:
                self.reply(302, {"Location": self.path.split("?", 1)[1]})

            def on_nowhere(self) -> None:
                self.reply(302, {})

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def fetch(server: Server, path: str, *domains: str, host: str = "127.0.0.1") -> bytes:
    access = MediaAccess.of(allowed_media_domains=domains or ["127.0.0.1"])
    found = load(f"http://{host}:{server.port}{path}", access)
    assert found is not None
    return found


def test_fetching(server: Server) -> None:
    assert fetch(server, "/good?x=1") == DATA
    assert server.asked[-1] == f"127.0.0.1:{server.port} /good?x=1"
    assert fetch(server, "/unsized") == DATA
    assert fetch(server, "/to?/good") == DATA
    assert fetch(server, "/good", "127.0.0.0/8") == DATA
    assert fetch(server, "/good", "localhost", "127.0.0.1", host="LocalHost.") == DATA


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/large", "100000000 bytes, more than"),
        ("/endless", "more than 1000 bytes"),
        ("/short", "1 of 50 bytes|can't be read"),
        ("/packed", "compressed"),
        ("/missing", "status 404"),
        ("/nowhere", "to nowhere"),
        ("/to?/to?/to?/to?/to?/to?/to?/good", "more than 5 redirects"),
        ("/to?file:///etc/passwd", r"must read http\(s\)"),
        ("/to?http://other.example/a", "not in allowed_media_domains"),
        ("/to?//other.example/a", "not in allowed_media_domains"),
        ("/to?http://[/", "redirects to"),
    ],
)
def test_bad_answers(server: Server, path: str, words: str) -> None:
    with pytest.raises(MediaError, match=words):
        fetch(server, path)


def test_a_slow_server_is_given_up(server: Server) -> None:
    access = MediaAccess.of(allowed_media_domains=["127.0.0.1"])
    start = time.monotonic()
    with pytest.raises(MediaError, match="fetch_seconds"):
        load_bytes(
            f"http://127.0.0.1:{server.port}/slow",
            "image",
            access,
            MediaLimits(fetch_seconds=0.4),
        )
    assert time.monotonic() - start < 4


def test_a_slow_resolver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(web.socket, "getaddrinfo", lambda *_, **__: done.wait(30) and [])
    limits = MediaLimits(fetch_seconds=0.2)
    access = MediaAccess.of(allowed_media_domains=["example.com"])
    start = time.monotonic()
    with pytest.raises(MediaError, match="took longer than fetch_seconds"):
        load_bytes("http://example.com/a.png", "image", access, limits)
    assert time.monotonic() - start < 20
    done.set()


@contextlib.contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port of this machine; `answer` gets one connection."""

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock.accept()[0] as connection:
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = threading.Thread(target=serve, args=[sock], daemon=True)
        thread.start()
        yield sock.getsockname()[1]
        thread.join(30)


def drip(connection: socket.socket) -> None:
    """The beginning of a TLS record of 16 KiB, a byte now and then."""
    connection.sendall(b"\x16\x03\x03\x40\x00\x02")
    while True:
        connection.sendall(b"\0")
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "message"),
    [(drip, "fetch_seconds"), (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), "be reached")],
)
def test_a_handshake_that_takes_long_or_fails(
    answer: Callable[[socket.socket], None], message: str
) -> None:
    access = MediaAccess.of(allowed_media_domains=["127.0.0.1"])
    with listening(answer) as port:
        start = time.monotonic()
        with pytest.raises(MediaError, match=message):
            load_bytes(
                f"https://127.0.0.1:{port}/a", "image", access, MediaLimits(fetch_seconds=0.5)
            )
        assert time.monotonic() - start < 20


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives a name addresses, one set per look-up."""

    def answer(*lookups: list[str]) -> None:
        left = list(lookups)

        def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
            found = left.pop(0) if len(left) > 1 else left[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in found]

        monkeypatch.setattr(web.socket, "getaddrinfo", getaddrinfo)

    return answer


def test_nothing_connects_to_what_is_not_allowed(
    server: Server, resolver: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(server.asked)
    dialled: list[str] = []
    monkeypatch.setattr(
        web.socket, "create_connection", lambda address, **_: dialled.append(address[0])
    )
    resolver(["127.0.0.1"])
    for host, domains in (
        ("127.0.0.1", ["example.com"]),
        ("localhost", ["localhost"]),
        ("example.com", ["example.com"]),
        ("example.com", ["*"]),
        ("cdn.example.com", ["example.com"]),
        ("example.com.evil.net", ["example.com"]),
        ("[::1]", ["*"]),
    ):
        with pytest.raises(MediaError, match="allowed_media_domains"):
            fetch(server, "/good", *domains, host=host)
    assert dialled == []
    assert len(server.asked) == count
    with pytest.raises(MediaError, match="not in allowed_media_domains"):
        load(f"http://127.0.0.1:{server.port}/good")


def test_the_checked_address_is_the_one_that_is_connected_to(
    server: Server, resolver: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[str] = []

    def create_connection(address: tuple[str, int], **_: Any) -> socket.socket:
        dialled.append(address[0])
        raise OSError("refused")

    monkeypatch.setattr(web.socket, "create_connection", create_connection)
    # A second look-up would give the loopback address.
    resolver(["10.1.2.3", "8.8.8.8"], ["127.0.0.1"])
    with pytest.raises(MediaError, match="can't be reached"):
        fetch(server, "/good", "example.com", host="example.com")
    assert dialled == ["8.8.8.8"]


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "::1", "::"),
        *("fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "64:ff9b:1::7f00:1"),
        *("::7f00:1", "::ffff:0:7f00:1", "fec0::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    parsed = web.ipaddress.ip_address(address)
    assert not web.read_allowed_hosts(["*"]).allows(parsed)
    assert not web.read_allowed_hosts(["example.com"]).allows(parsed)
    assert web.read_allowed_hosts(["*"]).allows(web.ipaddress.ip_address("93.184.216.34"))
    plain = getattr(parsed, "ipv4_mapped", None) or parsed
    assert web.read_allowed_hosts([str(plain)]).allows(parsed)
    assert web.read_allowed_hosts(["*"]).allows(web.ipaddress.ip_address("2606:4700::1111"))


@pytest.mark.parametrize(
    "url",
    [
        *("http://", "http:///a", "http://a b/", "http://a\n/", "http://[::1/", "http://a:99999/"),
        *("http://user:pw@127.0.0.1/", "http://127.0.0.1@example.com/", "http://exa\u043cple.com/"),
        *("https:\\\\example.com", "http://a:0/", "http://" + "a" * 9000),
    ],
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(MediaError):
        load(url, MediaAccess.of(allowed_media_domains=["*"]))


@pytest.mark.parametrize("domains", ["example.com", [1], ["http://a"], ["a/b"], [""], ["a:80"]])
def test_bad_lists_of_hosts(domains: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="allowed_media_domains"):
        MediaAccess.of(allowed_media_domains=domains)
