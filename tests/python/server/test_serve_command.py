"""headrace serve as a process, on the shipped model."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/soak"))

from adapters import make_adapter

HI = [{"role": "user", "content": "What is 12 + 7?"}]
MODEL = ROOT / "examples/tiny_model/checkpoint/config.json"
CHAT: dict[str, Any] = {"messages": HI, "temperature": 0}


class Serve:
    """The command; `url` once it listens."""

    def __init__(self, *options: str, **environment: str) -> None:
        code = "from headrace.cli import main; raise SystemExit(main())"
        path = os.pathsep.join(sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", "--port", "0", *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        self.log = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if found := re.search(r"serving .* on (http://\S+)", line):
                self.url = found[1]
                self._reader = threading.Thread(target=self._read)
                self._reader.start()
                return
        self.process.wait()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.log += line

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        self._reader.join()
        return code


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    poet = tmp_path_factory.mktemp("adapters") / "poet"
    make_adapter(poet, json.loads(MODEL.read_text()), rank=4, seed=1)
    adapters = ("--lora-modules", f"poet={poet}")
    serve = Serve("--max-model-len", "512", *adapters, HEADRACE_API_KEY="key-env")
    yield serve
    assert serve.end() == 0, serve.log
    assert "key-env" not in serve.log
    assert "12 + 7" not in serve.log


@pytest.fixture
def api(server: Serve) -> Iterator[httpx.Client]:
    headers = {"authorization": "Bearer key-env"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=120) as client:
        yield client


def test_streams_and_whole_answers_agree(api: httpx.Client) -> None:
    whole = api.post("/v1/chat/completions", json={**CHAT, "logprobs": True}).json()
    text = whole["choices"][0]["message"]["content"]
    assert "19" in text
    assert len(whole["choices"][0]["logprobs"]["content"]) == whole["usage"]["completion_tokens"]
    streamed = ""
    with api.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                streamed += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    assert streamed == text
    body = {"model": "headrace-tiny", "max_tokens": 64, **CHAT}
    message = api.post("/v1/messages", json=body).json()
    assert message["content"] == [{"type": "text", "text": text}]
    response = api.post("/v1/responses", json={"input": HI, "temperature": 0}).json()
    assert response["output"][0]["content"][0]["text"] == text


def test_guided_and_several(api: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    body = {"messages": HI, "n": 3, "seed": 1, "response_format": form, "max_tokens": 200}
    choices = api.post("/v1/chat/completions", json=body).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    whole = [choice for choice in choices if choice["finish_reason"] == "stop"]
    assert all(json.loads(c["message"]["content"])["a"] in (1, 2) for c in whole)
    prompts = {"prompt": ["User: ", [5, 6, 7]], "max_tokens": 3, "stop": "."}
    assert len(api.post("/v1/completions", json=prompts).json()["choices"]) == 2


def test_an_adapter_answers_for_itself(api: httpx.Client) -> None:
    cards = api.get("/v1/models").json()["data"]
    assert [(card["id"], card.get("parent")) for card in cards] == [
        ("headrace-tiny", None),
        ("poet", "headrace-tiny"),
    ]
    body = {"prompt": "User: What is 12 + 7?", "temperature": 0, "max_tokens": 12}
    answers = [
        api.post("/v1/completions", json={**body, "model": card["id"]}).json() for card in cards
    ]
    assert [answer["model"] for answer in answers] == ["headrace-tiny", "poet"]
    assert answers[0]["choices"][0]["text"] != answers[1]["choices"][0]["text"]


def test_the_engine_s_refusals(api: httpx.Client) -> None:
    form: dict[str, Any] = {"name": "s", "strict": True, "schema": {"type": "nothing"}}
    strict = {"messages": HI, "response_format": {"type": "json_schema", "json_schema": form}}
    for body, status in (
        ({"messages": [{"role": "user", "content": "x " * 2000}]}, 400),
        (strict, 400),
        ({"messages": HI, "logit_bias": {"99999999": 1}}, 400),
    ):  # fmt: skip
        for stream in (False, True):
            answer = api.post("/v1/chat/completions", json={**body, "stream": stream})
            assert answer.status_code == status, answer.text
            assert answer.json()["error"]["message"]
    form["strict"] = False
    answer = api.post("/v1/chat/completions", json={**strict, "max_tokens": 2})
    assert answer.status_code == 200, answer.text
    assert "type at / is left to the model" in answer.headers["x-headrace-warnings"]
    assert api.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_running_requests_end_before_the_server() -> None:
    serve = Serve("--max-model-len", "2048")
    body = {"prompt": "User: ", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{serve.url}/v1/completions", json=body, timeout=120) as answer:
        lines = answer.iter_lines()
        next(lines)
        serve.process.send_signal(signal.SIGTERM)
        last = [line for line in lines if line][-1]
    assert last == "data: [DONE]"
    assert serve.end() == 0, serve.log


def test_a_second_ctrl_c_ends_without_tracebacks() -> None:
    serve = Serve("--host", "0.0.0.0")
    address = serve.url.replace("0.0.0.0", "127.0.0.1")
    for path in ("/", "/page/app.js", "/page/none"):
        httpx.get(address + path)
    endless = {"prompt": "User: a", "max_tokens": 8000, "ignore_eos": True, "stream": True, "n": 8}
    with httpx.stream("POST", f"{address}/v1/completions", json=endless, timeout=60) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        serve.process.send_signal(signal.SIGINT)
        for _ in range(600):
            if "Ctrl-C again" in serve.log:
                break
            time.sleep(0.05)
        serve.process.send_signal(signal.SIGINT)
        with pytest.raises(httpx.HTTPError):
            for _ in pieces:
                pass
    assert serve.process.wait(60) == 130
    serve._reader.join()
    assert "waiting up to 60 s for 1 requests; Ctrl-C again ends them now" in serve.log
    assert "Traceback" not in serve.log
    assert "whoever reaches 0.0.0.0 may use the models" in serve.log
    assert "It is a toy" in serve.log
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:", line) for line in serve.log.splitlines())
    assert "GET /page/none 404" in serve.log
    assert "GET / " not in serve.log
    assert "app.js" not in serve.log


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("no/such/folder",), "no/such/folder"),
        (("--max-queue", "-1"), "max_queue"),
        (("--header-timeout", "0"), "header_seconds"),
        (("--api-key-file", "/no/such/file"), "file of keys"),
        (("--ssl-keyfile", "x"), "go together"),
        (("--lora-modules", "a"), "NAME=FOLDER"),
        (("--served-model-name", "a", "--", "b", "c"), "NAME=FOLDER"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], message: str) -> None:
    serve = Serve(*options)
    assert serve.process.returncode in (1, 2)
    assert message in serve.log
    assert "Traceback" not in serve.log


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serve = Serve("--port", str(taken.getsockname()[1]))
    assert serve.process.returncode == 2
    assert "cannot listen" in serve.log
