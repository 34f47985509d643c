"""Large requests and answers: they hold up no other client."""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from model_folders import byte_level_folder

import serving as serving_module
from headrace.protocol.json_reader import TooManyValues, read_json
from headrace.server import replies
from headrace.server.errors import ApiError
from headrace.server.replies import json_bytes, json_in_steps
from serving import PlayedLLM, serving

MESSAGES = [{"role": "user", "content": "Hi"}]
KIND = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = byte_level_folder(tmp_path_factory.mktemp("model"))
    llm = PlayedLLM(["ok"] * 200, folder=folder)
    with serving(llm, max_body_values=200_000) as url:
        yield url


def without_core() -> float:
    """Seconds that threads of this process were ready to run, and had to wait for a core."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            total += int((task / "schedstat").read_text().split()[1])
    return total / 1e9


def health_beside(url: str, work: Any) -> tuple[float, float]:
    """The longest time that another client waited for /health, and the time of the work. Time
    without a core, which others took of a busy machine, doesn't count: the server is this process.
    """
    done = threading.Event()
    worst = 0.0

    def ask() -> None:
        nonlocal worst
        with httpx.Client() as client:
            while not done.is_set():
                start, starved = time.monotonic(), without_core()
                assert client.get(f"{url}/health").status_code == 200
                waited, starved = time.monotonic() - start, without_core() - starved
                worst = max(worst, waited - max(0.0, starved))
                time.sleep(0.001)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.1)
    start = time.monotonic()
    try:
        work()
    finally:
        seconds = time.monotonic() - start
        done.set()
        thread.join()
    return worst, seconds


def chat(**more: Any) -> bytes:
    return json.dumps({"messages": MESSAGES, **more}).encode()


LARGE = {
    "empty arrays": ("/v1/chat/completions", b"[" + b"[]," * 500_000 + b"[]]", 413),
    "ids": ("/v1/completions", json.dumps({"prompt": list(range(180_000))}).encode(), 200),
    "parts": (
        "/v1/chat/completions",
        json.dumps(
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 25_000}]}
        ).encode(),
        400,
    ),
    "stop": ("/v1/chat/completions", chat(stop=[f"s{i}" for i in range(40_000)]), 400),
    "bias": (
        "/v1/chat/completions",
        chat(logit_bias={str(i): 1 for i in range(40_000)}),
        400,
    ),
    "text": ("/tokenize", json.dumps({"prompt": "a b, c " * 20_000}).encode(), 200),
    "long text": ("/tokenize", json.dumps({"prompt": "a" * (2 << 20)}).encode(), 400),
    "tokens": ("/detokenize", json.dumps({"tokens": [65, 66] * 50_000}).encode(), 200),
    "log-probabilities": ("/v1/completions", b'{"prompt": "a", "logprobs": 20, "n": 30}', 200),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_request_holds_up_no_other(server: str, name: str) -> None:
    path, body, status = LARGE[name]

    def ask() -> None:
        answer = httpx.post(server + path, content=body, headers=KIND, timeout=120)
        assert answer.status_code == status, answer.text[:300]

    worst, seconds = health_beside(server, ask)
    print(f"{name}: /health waited {worst * 1000:.0f} ms of {seconds * 1000:.0f}")
    # 100 ms on a machine of its own.
    assert worst < 0.3 + 0.3 * seconds


TEXT = "a" * 70_000
CHAT = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": TEXT}]}
READERS = {
    "/v1/chat/completions": ("chat.read_chat", CHAT),
    "/v1/completions": ("completions.read_completion", {"prompt": TEXT}),
    "/v1/messages": ("messages.read_anthropic", CHAT),
    "/v1/messages/count_tokens": ("messages.read_anthropic", CHAT),
    "/v1/responses": ("responses.read_responses", {"input": TEXT}),
    "/v1/responses/input_tokens": ("responses.read_responses", {"input": TEXT}),
    "/v1/embeddings": ("pooling.read_embedding", {"input": TEXT}),
    "/v1/rerank": ("pooling.read_rerank", {"query": "a", "documents": [TEXT]}),
    "/v1/score": ("pooling.read_score", {"text_1": "a", "text_2": TEXT}),
    "/api/chat": ("ollama.read_ollama_chat", CHAT),
    "/api/generate": ("ollama.read_ollama_generate", {"prompt": TEXT}),
    "/api/embed": ("ollama.read_embed", {"input": TEXT}),
    "/api/embeddings": ("ollama.read_old_embedding", {"prompt": TEXT}),
    "/api/show": ("ollama.read_shown", {"model": TEXT}),
    "/tokenize": ("tokens._reader", {"prompt": TEXT}),
    "/detokenize": ("tokens._check_ids", {"tokens": [65] * 70_000}),
}


@pytest.mark.parametrize("path", READERS)
def test_large_bodies_are_read_beside_the_event_loop(
    server: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, body = READERS[path]
    threads = []

    def noted(*_: Any, **__: Any) -> Any:
        threads.append(threading.current_thread().name)
        raise ApiError("read", 418)

    monkeypatch.setattr(f"headrace.server.api.{reader}", noted)
    assert httpx.post(server + path, json=body).status_code == 418
    assert [name.rpartition("_")[0] for name in threads] == ["headrace-heavy"]


STREAMS = {
    "/v1/chat/completions": ("chat.events", {"messages": MESSAGES, "logprobs": True}),
    "/v1/completions": ("completions.events", {"prompt": "a", "logprobs": 1}),
    "/v1/responses": ("responses._events_of", {"input": "a", "top_logprobs": 1}),
    "/api/chat": ("ollama._line", {"messages": MESSAGES, "logprobs": True}),
}


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("tokens", [5, 3000])
def test_a_large_update_of_a_stream_is_written_beside_the_event_loop(
    path: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = {"text": "A", "token_ids": [7] * tokens}
    writer, body = STREAMS[path]
    threads = []
    write = attrgetter(writer)(importlib.import_module("headrace.server.api"))

    def noted(*given: Any) -> bytes:
        threads.append(threading.current_thread().name.rpartition("_")[0])
        written: bytes = write(*given)
        return written

    monkeypatch.setattr(f"headrace.server.api.{writer}", noted)
    with serving(PlayedLLM([piece])) as url:
        answer = httpx.post(url + path, json={**body, "stream": True})
    assert answer.status_code == 200
    assert answer.text.count("-0.5") >= tokens
    assert ("headrace-heavy" in threads) == (tokens > 5)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", STREAMS)
def test_a_large_answer_is_written_in_small_steps(
    path: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GIL is held for as long as one takes."""
    steps: list[int] = []
    write = replies.json_bytes

    def noted(value: Any) -> bytes:
        written = write(value)
        steps.append(len(written))
        return written

    monkeypatch.setattr(replies, "json_bytes", noted)
    with serving(PlayedLLM([{"text": "A", "token_ids": [7] * 3000}])) as url:
        answer = httpx.post(url + path, json={**STREAMS[path][1], "stream": stream})
    assert answer.text.count("-0.5") >= 3000
    assert sum(steps) > len(answer.content) / 2
    assert max(steps) < len(answer.content) / 20


def test_n_tokens_and_log_probabilities_are_bounded_together(server: str) -> None:
    body = {"messages": MESSAGES, "n": 128, "max_tokens": 400, "logprobs": True, "top_logprobs": 20}
    answer = httpx.post(f"{server}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "too_many_logprobs"
    assert "1075200" in answer.json()["error"]["message"]
    for path, long in (
        ("chat/completions", {"messages": [{"role": "user", "content": "x" * 101_000}]}),
        ("completions", {"prompt": [[5] * 30_000] * 2}),
    ):
        answer = httpx.post(f"{server}/v1/{path}", json={**long, "prompt_logprobs": 20})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "too_many_logprobs"


def test_no_memory_is_an_error_of_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with serving() as url:
        for place in (
            "headrace.server.endpoint._parse_json",
            "headrace.server.api.chat.chat_answer",
        ):
            with monkeypatch.context() as patch:
                patch.setattr(place, none)
                answer = httpx.post(f"{url}/v1/chat/completions", content=chat(), headers=KIND)
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "no_memory"


def test_answers_on_a_kept_connection_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the client to acknowledge the head before the body is sent, which takes it 40 ms."""
    seen = []
    made = serving_module.timed_protocol

    def recorded(seconds: float) -> Any:
        class Recorded(made(seconds)):  # type: ignore[misc]
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                connection = transport.get_extra_info("socket")
                seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        return Recorded

    def bound(address: Any) -> socket.socket:  # as Listener.bind makes it
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.bind(address)
        listening.listen()
        return listening

    monkeypatch.setattr(serving_module, "timed_protocol", recorded)
    monkeypatch.setattr(socket, "create_server", bound)
    with serving() as url:
        assert httpx.get(f"{url}/health").status_code == 200
    assert seen
    assert all(seen)


TEXTS = [
    "", "{", "[1,]", "[1,2", '{"a"}', '{"a":1,}', "[NaN]", "[1 2]", '"a" b', "[01]", "[tru]", "tru",
    '"\\ud800"', "[1,,3]", '["a",]', '{"a":1 "b":2}', "[1,2}", "NaN", "-Infinity", "[1,\n2]",
    "1e999", "[nul l]", '[1,"x",2,3,[5,6],7]', "nullnull", '[1,[2],3,{"b":[1.5e3,true,null,-0]}]',
    "[,1]", ' [ 1 , "a" , 2, 3 ] ', '{"a":1,"a":2}', "[1,2,]", '{"a":[1,2],"b":{}}', "{,}",
    '"a\nb"',
]  # fmt: skip


def parsed(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        return "refused"


def plain(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("text", TEXTS)
def test_json_is_read_as_json_loads_does(text: str) -> None:
    assert repr(parsed(lambda text: read_json(text, 1000), text)) == repr(parsed(plain, text))


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=40,
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(value=JSON, indent=st.none() | st.integers(0, 2), seed=st.integers(0, 9))
def test_random_json(value: Any, indent: int | None, seed: int) -> None:
    text = json.dumps(value, indent=indent)
    assert read_json(text, 10_000) == plain(text)
    assert json_in_steps(value) == json_bytes(value)
    rng = random.Random(seed)  # and with a character missing
    place = rng.randrange(len(text))
    cut = text[:place] + text[place + 1 :]
    assert repr(parsed(lambda text: read_json(text, 10_000), cut)) == repr(parsed(plain, cut))


def test_values_are_counted() -> None:
    assert read_json("[1,2,[3]]", 5) == [1, 2, [3]]
    for text in ("[1,2,[3]]", '{"a":1,"b":{"c":2}}', "[[],[],[],[]]"):
        with pytest.raises(TooManyValues):
            read_json(text, 3)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json("[" * 100_000, 1 << 20)
