"""Ollama's /api against the server: lines of JSON, whole answers, models, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from headrace.llm.outputs import RequestMetrics
from serving import PlayedLLM, serving, tokenizer_folder

HI = [{"role": "user", "content": "Hi"}]
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "Does it", "parameters": {"type": "object"}},
}
COUNTS = {"prompt_eval_count": 5, "eval_count": 3, "load_duration": 0}
# 1x1, which nobody decodes here.
IMAGE = "iVBORw0KGgo="


def asked(path: str, llm: PlayedLLM | None = None, **body: Any) -> Any:
    """The answer of a server of its own."""
    with serving(llm or PlayedLLM()) as url:
        return httpx.post(f"{url}/api/{path}", json={"model": "m", **body})


def lines(answer: Any) -> list[Any]:
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture(scope="module")
def api() -> Iterator[httpx.Client]:
    with serving(PlayedLLM()) as url, httpx.Client(base_url=url) as client:
        yield client


def test_chat_comes_in_lines() -> None:
    llm = PlayedLLM(finish_reason="length")
    llm.metrics = RequestMetrics(
        inference_start_time=1.0,
        engine_recv_first_token_time=1.5,
        engine_recv_latest_token_time=3.5,
    )
    *pieces, last = lines(asked("chat", llm, messages=HI))
    assert [piece["message"]["content"] for piece in pieces] == ["Hello", " there", "!"]
    assert all(piece["model"] == "m" and piece["done"] is False for piece in pieces)
    assert datetime.fromisoformat(last["created_at"].replace("Z", "+00:00")).tzinfo is not None
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["done"], last["done_reason"]) == (True, "length")
    assert last.items() >= COUNTS.items()
    assert (last["prompt_eval_duration"], last["eval_duration"]) == (500_000_000, 2_000_000_000)
    assert last["total_duration"] > 0


def test_options_reach_the_engine() -> None:
    llm = PlayedLLM()
    options = {
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.8,
        "min_p": 0.05,
        "seed": 7,
        "num_predict": 9,
        "stop": ["x"],
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "num_ctx": 4096,
    }
    answer = asked("chat", llm, messages=HI, options=options, stream=False, keep_alive="5m")
    assert answer.json()["message"] == {"role": "assistant", "content": "Hello there!"}
    assert answer.json().items() >= {"done": True, "done_reason": "stop", **COUNTS}.items()
    params = llm.calls[0]["params"]
    own = {"repeat_penalty": "repetition_penalty", "num_predict": "max_tokens"}
    for name, value in options.items():
        if name != "num_ctx":
            assert getattr(params, own.get(name, name)) == value
    warnings = answer.headers["x-headrace-warnings"]
    assert "options.num_ctx has no effect" in warnings
    assert "keep_alive has no effect" in warnings


def test_no_limit_and_a_random_seed() -> None:
    llm = PlayedLLM()
    asked("chat", llm, messages=HI, options={"num_predict": -1, "seed": -1})
    params = llm.calls[0]["params"]
    assert (params.max_tokens, params.seed) == (None, None)


def test_generate() -> None:
    llm = PlayedLLM([{"reasoning_content": "Hm"}, "So"])
    with serving(llm) as url:
        body = {"model": "m:latest", "prompt": "Why?", "system": "Be kind", "think": True}
        *pieces, last = lines(httpx.post(f"{url}/api/generate", json=body))
        raw = httpx.post(
            f"{url}/api/generate", json={"prompt": "Why", "raw": True, "stream": False}
        ).json()
    assert [(piece.get("thinking"), piece["response"]) for piece in pieces] == [
        ("Hm", ""),
        (None, "So"),
    ]
    assert (last["response"], last["done_reason"], last["eval_count"]) == ("", "stop", 2)
    assert (raw["response"], raw["thinking"], raw["done"]) == ("So", "Hm", True)
    first, second = llm.calls
    assert first["messages"] == [
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": "Why?"},
    ]
    assert first["chat_template_kwargs"] == {"enable_thinking": True}
    assert second["messages"] == [{"prompt": "Why"}]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_and_their_results(stream: bool) -> None:
    made = [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f"}}]
    more = [[{"index": 0, "function": {"arguments": text}}] for text in ('{"a"', ": 1}")]
    other = [{"index": 1, "id": "t2", "function": {"name": "g", "arguments": "{}"}}]
    llm = PlayedLLM([{"tool_calls": calls} for calls in (made, *more, other)])
    call = {"function": {"name": "f", "arguments": {"x": "é"}}}
    messages = [
        *HI,
        {"role": "assistant", "content": "", "thinking": "Hm", "tool_calls": [call, call]},
        {"role": "tool", "tool_name": "f", "content": "4"},
        {"role": "tool", "content": "5"},
    ]
    answer = asked("chat", llm, messages=messages, tools=[TOOL], stream=stream)
    found = lines(answer) if stream else [answer.json()]
    calls = [call for one in found for call in one["message"].get("tool_calls", [])]
    assert [(one["id"], one["function"]) for one in calls] == [
        ("t1", {"index": 0, "name": "f", "arguments": {"a": 1}}),
        ("t2", {"index": 1, "name": "g", "arguments": {}}),
    ]
    assert llm.calls[0]["tools"] == [TOOL]
    _, turn, first, second = llm.calls[0]["messages"]
    assert turn["reasoning_content"] == "Hm"
    ids = [call["id"] for call in turn["tool_calls"]]
    assert ids == [first["tool_call_id"], second["tool_call_id"]] == ["call00000", "call00001"]
    assert turn["tool_calls"][0]["function"]["arguments"] == '{"x": "é"}'


def test_images_stand_before_the_text() -> None:
    llm = PlayedLLM(vision=True)
    with serving(llm) as url:
        message = {"role": "user", "content": "What?", "images": [IMAGE]}
        httpx.post(f"{url}/api/chat", json={"messages": [message]})
        httpx.post(f"{url}/api/generate", json={"prompt": "What?", "images": [IMAGE]})
    image = {"type": "image_url", "image_url": {"url": f"data:;base64,{IMAGE}"}}
    for call in llm.calls:
        (shown,) = call["messages"]
        assert shown["content"] == [image, {"type": "text", "text": "What?"}]


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {}}])
def test_format(form: Any) -> None:
    llm = PlayedLLM()
    asked("chat", llm, messages=HI, format=form)
    guided = llm.calls[0]["params"].guided_decoding
    assert (guided.json_object or guided.json) == (True if form == "json" else form)


def test_think_may_be_a_level() -> None:
    llm = PlayedLLM()
    asked("chat", llm, messages=HI, think="low")
    wanted = {"enable_thinking": True, "reasoning_effort": "low"}
    assert llm.calls[0]["chat_template_kwargs"] == wanted


def test_logprobs() -> None:
    answer = asked("generate", prompt="a", stream=False, logprobs=True, top_logprobs=1).json()
    assert [entry["token"] for entry in answer["logprobs"]] == ["Hello", " there", "!"]
    assert len(answer["logprobs"][0]["top_logprobs"]) == 1


def test_nothing_to_answer_loads(api: httpx.Client) -> None:
    for path, body, name in (
        ("chat", {"messages": []}, "message"),
        ("chat", {}, "message"),
        ("generate", {"prompt": ""}, "response"),
    ):
        answer = api.post(f"/api/{path}", json={"model": "m", **body}).json()
        assert answer.items() >= {"done": True, "done_reason": "load"}.items()
        assert name in answer
        wanted = api.post(f"/api/{path}", json={"model": "m", "keep_alive": 0, **body})
        assert wanted.status_code == 400
        assert "unload" in wanted.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("chat", {"messages": HI, "mesages": 1}, "did you mean 'messages'"),
        ("chat", {"messages": HI, "options": {"num_predic": 1}}, "did you mean 'num_predict'"),
        ("chat", {"messages": HI, "options": {"mirostat": 1}}, "options.mirostat"),
        ("chat", {"messages": HI, "options": {"temperature": -1}}, "options.temperature"),
        ("chat", {"messages": HI, "options": {"stop": [1]}}, "options.stop"),
        ("chat", {"messages": HI, "options": {"repeat_penalty": 0}}, "options.repeat_penalty"),
        ("chat", {"messages": HI, "format": "xml"}, "format must be"),
        ("chat", {"messages": HI, "think": "much"}, "think must be"),
        ("chat", {"messages": [{"role": "judge"}]}, "messages[0].role"),
        ("chat", {"messages": [{"role": "user", "images": [1]}]}, "messages[0].images[0]"),
        ("chat", {"messages": [*HI, {"role": "tool", "tool_name": "f"}]}, "no call of 'f' left"),
        ("generate", {"prompt": "a", "suffix": "b"}, "suffix"),
        ("generate", {"prompt": "a", "context": [1]}, "context"),
        ("generate", {"prompt": "a", "template": "{{ .Prompt }}"}, "template"),
        ("generate", {"prompt": "a", "raw": True, "system": "b"}, "system"),
        ("generate", {"prompt": "a", "raw": True, "images": [IMAGE]}, "images"),
        ("embed", {}, "input"),
        ("embed", {"input": [1]}, "input must be"),
        ("embed", {"input": "a", "dimensions": 0}, "dimensions"),
        ("show", {"model": "m", "template": "b"}, "template"),
        ("pull", {"model": "m"}, "/api/pull is not supported"),
        ("create", {"model": "m"}, "/api/create is not supported"),
    ],
)
def test_what_is_refused(api: httpx.Client, path: str, body: dict[str, Any], words: str) -> None:
    answer = api.post(f"/api/{path}", json=body)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert words in answer.json()["error"]


def test_errors_have_ollama_s_shape(api: httpx.Client) -> None:
    for method, path, status in (
        ("POST", "chat", 404),
        ("POST", "show", 404),
        ("DELETE", "delete", 400),
        ("POST", "blobs/sha256:1", 400),
        ("GET", "nothing", 404),
    ):
        body = {"model": "other", "messages": HI} if path == "chat" else {"model": "other"}
        answer = api.request(method, f"/api/{path}", json=body)
        assert answer.status_code == status
        assert isinstance(answer.json()["error"], str)


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    llm = PlayedLLM(error=(500, "the engine has failed"), fails_after=1)
    first, last = lines(asked("chat", llm, messages=HI))
    assert first["message"]["content"] == "Hello"
    assert last == {"error": "the engine has failed"}


def test_models(tmp_path: Path) -> None:
    llm = PlayedLLM(folder=tokenizer_folder(tmp_path))
    with serving(llm) as url:
        (tag,) = httpx.get(f"{url}/api/tags").json()["models"]
        (running,) = httpx.get(f"{url}/api/ps").json()["models"]
        shown = httpx.post(f"{url}/api/show", json={"model": "m"}).json()
        older = httpx.post(f"{url}/api/show", json={"name": "m:latest", "verbose": True}).json()
        version = httpx.get(f"{url}/api/version").json()
        own = httpx.get(f"{url}/version").json()
        llm.chat_template = "{% for tool in tools %}{{ tool }}{% endfor %}"
        given = httpx.post(f"{url}/api/show", json={"model": "m"}).json()
    assert (tag["name"], tag["model"], tag["size"], len(tag["digest"])) == ("m", "m", 3_000_000, 64)
    assert tag["details"]["parameter_size"] == "1.5M"
    assert tag["details"]["quantization_level"] == "bfloat16"
    assert (running["digest"], running["size_vram"]) == (tag["digest"], 0)
    assert running["context_length"] == shown["model_info"]["played.context_length"] == 4096
    assert shown == older
    assert shown["template"] == llm.get_tokenizer().chat_template
    assert shown["capabilities"] == ["completion", "thinking"]
    assert given["template"] == llm.chat_template
    assert given["capabilities"] == ["completion", "tools"]
    assert version == own


def test_options_of_embeddings_are_noted(api: httpx.Client) -> None:
    answer = api.post("/api/embed", json={"input": [], "options": {"x\r\ny": 1}})
    assert (answer.status_code, answer.json()["embeddings"]) == (200, [])
    assert answer.headers["x-headrace-warnings"] == "options has no effect: nothing is sampled"
