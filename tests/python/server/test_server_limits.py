"""Each limit, header and path: what is refused, how, and at whose cost."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import logging
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from headrace.cli import serve
from headrace.server import ServerConfig, run
from serving import PlayedLLM, serving, tokenizer_folder

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
CHAT = "/v1/chat/completions"
SOON = httpx.Timeout(60, read=3)  # time for a loaded machine to begin the request


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def until(condition: Any) -> None:
    """Waits for what another thread does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_long_body_is_refused(chunked: bool) -> None:
    llm = PlayedLLM()
    data = json.dumps({**BODY, "stop": "x" * 2000}).encode()
    content = iter([data[:500], data[500:]]) if chunked else data
    with serving(llm, max_body_bytes=1000) as url:
        answer = httpx.post(
            url + CHAT, content=content, headers={"content-type": "application/json"}
        )
    assert (answer.status_code, error_of(answer)["code"]) == (413, "body_too_large")
    assert not llm.calls


def test_a_body_that_does_not_come_is_given_up() -> None:
    with serving(body_seconds=0.2) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port)) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
            )
            assert b" 408 " in connection.recv(100)


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_json"),
        (b"[]", "application/json", 400, "invalid_type"),
        (b"\xff", "application/json", 400, "invalid_json"),
        (b'{"a": NaN}', "application/json", 400, "invalid_json"),
        (b"[" * 100_000, "application/json", 400, "invalid_json"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "application/json", 400, "invalid_json"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{}", "application/json", 400, "missing_required_parameter"),
    ],
)
def test_bodies_that_are_no_request(content: bytes, kind: str, status: int, code: str) -> None:
    with serving() as url:
        answer = httpx.post(url + CHAT, content=content, headers={"content-type": kind})
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert len(error_of(answer)["message"]) < 500


def test_compressed_bodies_are_refused() -> None:
    with serving() as url:
        answer = httpx.post(url + CHAT, json=BODY, headers={"content-encoding": "gzip"})
    assert error_of(answer)["code"] == "unsupported_encoding"


def test_limits_of_messages_and_outputs(tmp_path: Path) -> None:
    llm = PlayedLLM(folder=tokenizer_folder(tmp_path))
    many = {**BODY, "messages": BODY["messages"] * 3}
    with serving(llm, max_messages=2, max_outputs=3) as url:
        codes = [
            error_of(httpx.post(url + path, json=body))["code"]
            for path, body in (
                (CHAT, many),
                ("/tokenize", many),
                (CHAT, {**BODY, "n": 4}),
                ("/v1/completions", {"model": "m", "prompt": ["a", "b"], "n": 2}),
            )
        ]
    assert codes == ["too_many_messages"] * 2 + ["too_many_outputs"] * 2
    assert not llm.calls


def test_places_and_queue() -> None:
    llm = PlayedLLM()
    llm.held = True
    with serving(llm, max_concurrency=2, max_queue=1) as url:
        answers: list[httpx.Response] = []
        threads = [
            threading.Thread(target=lambda: answers.append(httpx.post(url + CHAT, json=BODY)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        metrics = f"{url}/metrics"
        until(lambda: "headrace_http_queued 1.0" in httpx.get(metrics).text)
        refused = httpx.post(url + CHAT, json=BODY)
        llm.held = False
        for thread in threads:
            thread.join()
    assert (refused.status_code, error_of(refused)["code"]) == (429, "queue_full")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert [answer.status_code for answer in answers] == [200] * 3
    assert llm.most_running == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_place(stream: bool) -> None:
    llm = PlayedLLM(["x"] * 1000, seconds=0.1)
    with serving(llm, max_concurrency=1) as url:
        if stream:
            with httpx.stream("POST", url + CHAT, json={**BODY, "stream": True}) as got:
                next(got.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(url + CHAT, json=BODY, timeout=SOON)
        until(lambda: llm.cancelled == 1)
        llm.pieces = ["x"]
        llm.seconds = 0.0
        assert httpx.post(url + CHAT, json=BODY).status_code == 200


def test_a_client_that_waits_in_the_queue_may_go() -> None:
    llm = PlayedLLM()
    llm.held = True
    with serving(llm, max_concurrency=1) as url:
        first = threading.Thread(target=httpx.post, args=(url + CHAT,), kwargs={"json": BODY})
        first.start()
        until(lambda: llm.running)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url + CHAT, json=BODY, timeout=SOON)
        until(lambda: "headrace_http_queued 0.0" in httpx.get(f"{url}/metrics").text)
        llm.held = False
        first.join()
    assert len(llm.calls) == 1


def test_a_client_that_reads_nothing_is_left(caplog: pytest.LogCaptureFixture) -> None:
    llm = PlayedLLM(["x" * 100_000] * 1000)
    with caplog.at_level(logging.INFO, "headrace"), serving(llm, send_seconds=0.3) as url:
        place = urlsplit(url)
        data = json.dumps({**BODY, "stream": True}).encode()
        with socket.create_connection((place.hostname, place.port)) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
            )
            until(lambda: llm.cancelled == 1)
            until(lambda: "POST /v1/chat/completions 499" in caplog.text)
    assert "generated_tokens=" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": ""}, 403),
        ({"host": "["}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://friend.example"}, 200),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, 200),
        ({"host": "localhost:1", "origin": "http://localhost:2"}, 403),
    ],
)
def test_host_and_origin(headers: dict[str, str], status: int) -> None:
    hosts = ("127.0.0.1", "LocalHost")
    with serving(allowed_hosts=hosts, allowed_origins=("http://friend.example",)) as url:
        answer = httpx.get(f"{url}/v1/models", headers=headers)
        page = httpx.get(url, headers=headers)
    assert answer.status_code == page.status_code == status


def test_a_name_that_leads_to_this_machine_is_not_enough() -> None:
    """Also for an app that was made without a word about hosts."""
    evil = {"host": "evil.example:80", "origin": "http://evil.example:80"}
    with serving() as url:
        assert httpx.get(f"{url}/v1/models", headers=evil).status_code == 403
    with serving(allowed_hosts=None) as url:
        assert httpx.get(f"{url}/v1/models", headers=evil).status_code == 200


@pytest.mark.parametrize(
    ("host", "others"),
    [
        ("127.0.0.1", False),
        ("127.0.0.2", False),
        ("LOCALHOST", False),
        ("::1", False),
        ("0.0.0.0", True),
        ("192.0.2.1", True),
    ],
)
def test_names_of_a_server_that_only_this_machine_reaches(host: str, others: bool) -> None:
    parser = argparse.ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    names = serve._config(parser.parse_args(["serve", "--host", host])).allowed_hosts
    assert (names is None) == others
    assert names is None or host in names


def test_preflights_of_friends_only() -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-a"}
    with serving(allowed_origins=("http://friend.example",)) as url:
        allowed = [
            httpx.options(url + CHAT, headers={**asked, "origin": f"http://{name}.example"})
            for name in ("friend", "evil")
        ]
    assert allowed[0].headers["access-control-allow-origin"] == "http://friend.example"
    assert "access-control-allow-origin" not in allowed[1].headers


@pytest.mark.parametrize("given", ["abc-1", "a\tb", "x" * 65, "ä", ""])
def test_request_ids(given: str) -> None:
    with serving() as url:
        answer = httpx.get(f"{url}/health", headers={"x-request-id": given.encode()})
    shown = answer.headers["x-request-id"]
    assert (shown == given) == (given == "abc-1")
    assert answer.headers["request-id"] == shown
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/page/../auth.py", 404),
        ("GET", "/page/..%2fauth.py", 404),
        ("GET", "/page/%2e%2e/auth.py", 404),
        ("GET", "/page//etc/passwd", 404),
        ("GET", "/page/__init__.py", 404),
        ("GET", "/v1/models/..%2f..%2fetc", 404),
        ("GET", "/%00", 404),
    ],
)
def test_paths(method: str, path: str, status: int) -> None:
    with serving() as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port)) as connection:
            connection.sendall(
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    assert text.startswith(f"HTTP/1.1 {status} ")
    assert '"error"' in text


def test_templates_of_requests_need_trust() -> None:
    for extra in ({"chat_template": "x"}, {"chat_template_kwargs": {"chat_template": "x"}}):
        for trusted in (False, True):
            llm = PlayedLLM()
            with serving(llm, trust_request_chat_template=trusted) as url:
                answer = httpx.post(url + CHAT, json={**BODY, **extra})
            assert answer.status_code == (200 if trusted else 400)
            assert len(llm.calls) == trusted


def test_health_tells_whether_a_model_answers() -> None:
    llm = PlayedLLM()
    with serving(llm, stuck_seconds=0.05) as url:

        def health() -> tuple[int, str]:
            answer = httpx.get(f"{url}/health")
            return answer.status_code, answer.text

        assert health()[0] == 200
        time.sleep(0.1)  # with nothing to do
        llm.counters |= {"running_requests": 1, "steps": 7}
        assert health()[0] == 200
        time.sleep(0.1)
        status, text = health()
        assert status == 503
        assert "without a step" in text
        llm.counters["steps"] = 8
        assert health()[0] == 200
        llm.counters["running_replicas"] = 0
        status, text = health()
        assert status == 503
        assert "takes no requests" in text


@pytest.mark.parametrize("path", ["a\0b", "a\ud800"])
def test_paths_that_are_none(path: str) -> None:
    key = {"authorization": "Bearer admin", "content-type": "application/json"}
    with serving(admin_keys=("admin",)) as url:
        for where, body in (
            ("load_lora_adapter", {"lora_name": "x", "lora_path": path}),
            ("models/load", {"model": path}),
        ):
            data = json.dumps(body).encode()
            answer = httpx.post(f"{url}/v1/{where}", content=data, headers=key)
            assert answer.status_code == 400, answer.text


def test_tokens_there_and_back(tmp_path: Path) -> None:
    llm = PlayedLLM(folder=tokenizer_folder(tmp_path))
    with serving(llm) as url:
        prompt = {"prompt": "héllo", "add_special_tokens": False}
        ids = httpx.post(f"{url}/tokenize", json=prompt).json()
        assert ids["count"] == len(ids["tokens"])
        back = httpx.post(f"{url}/detokenize", json={"tokens": ids["tokens"]}).json()
        assert back == {"prompt": "héllo"}
        chat = httpx.post(f"{url}/tokenize", json={**BODY, "return_token_strs": True}).json()
        assert len(chat["token_strs"]) == chat["count"] > 0
        for tokens in ([512], [-1], [True], ["a"], "abc"):
            answer = httpx.post(f"{url}/detokenize", json={"tokens": tokens})
            assert answer.status_code == 400, tokens
        lone = httpx.post(
            f"{url}/tokenize",
            content=b'{"prompt": "\\ud800"}',
            headers={"content-type": "application/json"},
        )
        assert lone.status_code in (200, 400)
        tokenizer = llm.get_tokenizer()
        known = httpx.get(f"{url}/tokenizer_info").json()
        assert known["eos_token"] == tokenizer.eos_token is not None
        assert known["chat_template"] == tokenizer.chat_template
        assert httpx.get(f"{url}/tokenizer_info?model=m").json() == known
        assert httpx.get(f"{url}/tokenizer_info?model=other").status_code == 404


def test_bodies_together_have_a_limit() -> None:
    llm = PlayedLLM()
    llm.held = True
    large = {**BODY, "stop": "x" * 600}
    with serving(llm, max_body_bytes=1000, max_total_body_bytes=1000) as url:
        first = threading.Thread(target=httpx.post, args=(url + CHAT,), kwargs={"json": large})
        first.start()
        until(lambda: llm.running)
        refused = httpx.post(url + CHAT, json=large)
        llm.held = False
        first.join()
        after = httpx.post(url + CHAT, json=large)
    assert (refused.status_code, error_of(refused)["code"]) == (429, "bodies_full")
    assert refused.headers["retry-after"] == "1"
    assert after.status_code == 200
    with pytest.raises(ValueError, match="max_total_body_bytes"):
        ServerConfig(max_body_bytes=10, max_total_body_bytes=9)


def test_tokenizing_has_places_of_its_own(tmp_path: Path) -> None:
    """It waits for no place in the engine, and its own are as limited."""
    llm = PlayedLLM(folder=tokenizer_folder(tmp_path))
    tokenizer, gate = llm.get_tokenizer(), threading.Event()
    running: list[str] = []

    class Slow:
        def encode(self, text: str, special: bool) -> Any:
            running.append(text)
            assert gate.wait(60)
            return tokenizer.encode(text, special)

    llm._tokenizer = Slow()
    llm.held = True
    body = {"prompt": "Hi"}
    with serving(llm, max_concurrency=1, max_text_concurrency=1, max_queue=1) as url:
        chat = threading.Thread(target=httpx.post, args=(url + CHAT,), kwargs={"json": BODY})
        chat.start()
        until(lambda: llm.running)
        answers: list[httpx.Response] = []
        asked = [
            threading.Thread(
                target=lambda: answers.append(httpx.post(f"{url}/tokenize", json=body, timeout=60))
            )
            for _ in range(3)
        ]
        for thread in asked:
            thread.start()
        until(lambda: answers and running)  # one of them is refused: one runs, one waits
        gate.set()
        for thread in asked:
            thread.join()
        llm.held = False
        chat.join()
    assert sorted(answer.status_code for answer in answers) == [200, 200, 429]


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
@pytest.mark.parametrize("later", [False, True])
def test_headers_that_do_not_come_are_given_up(begun: bytes, later: bool) -> None:
    with serving(header_seconds=0.3) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
            if later:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
            connection.sendall(begun)
            while connection.recv(1 << 16):
                pass  # until the server closes it
        assert httpx.get(f"{url}/health").status_code == 200


def test_slow_answers_are_no_slow_headers() -> None:
    llm = PlayedLLM(["a", "b"], seconds=0.5)
    with serving(llm, header_seconds=0.2) as url:
        assert httpx.post(url + CHAT, json=BODY).status_code == 200


def test_running_out_of_descriptors_is_one_line_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(run.logger, "error", lambda text, *parts: told.append(text % parts))
    handler, loop, others = run.FewAccepts(), asyncio.new_event_loop(), []
    monkeypatch.setattr(loop, "default_exception_handler", others.append)
    full = {"exception": OSError(errno.EMFILE, "Too many open files")}
    for _ in range(1000):
        handler(loop, full)
    assert told == ["no connection can be accepted: Too many open files"]
    handler(loop, {"message": "another"})
    assert others == [{"message": "another"}]
    loop.close()
