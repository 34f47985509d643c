"""The anthropic package against the server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

anthropic = pytest.importorskip("anthropic")

from serving import PlayedLLM, events, serving, tokenizer_folder  # noqa: E402

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "f", "description": "Does it", "input_schema": {"type": "object"}}
CALL = [
    {"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}
]
ARGUMENTS = [{"index": 0, "function": {"arguments": ": 1}"}}]


def client(url: str) -> Any:
    return anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)


def test_message() -> None:
    llm = PlayedLLM()
    with serving(llm) as url, client(url) as api:
        answer = api.messages.create(
            model="m",
            max_tokens=9,
            system="Be kind",
            messages=HI,
            stop_sequences=["x"],
            extra_body={"temperature": 0.5, "top_k": 3},
        )
    assert [block.text for block in answer.content] == ["Hello there!"]
    assert (answer.stop_reason, answer.usage.output_tokens) == ("end_turn", 3)
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (3, 2)
    call = llm.calls[0]
    assert call["messages"] == [{"role": "system", "content": "Be kind"}, *HI]
    params = call["params"]
    assert (params.stop, params.temperature, params.top_k, params.max_tokens) == (["x"], 0.5, 3, 9)


def test_stream_with_thoughts_and_a_call() -> None:
    pieces = [{"reasoning_content": "Hm"}, "So", {"tool_calls": CALL}, {"tool_calls": ARGUMENTS}]
    llm = PlayedLLM(pieces)
    with (
        serving(llm) as url,
        client(url) as api,
        api.messages.stream(model="m", max_tokens=9, messages=HI, tools=[TOOL]) as stream,
    ):
        assert list(stream.text_stream) == ["So"]
        answer = stream.get_final_message()
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    assert answer.content[2].input == {"a": 1}
    assert answer.stop_reason == "tool_use"
    assert answer.usage.output_tokens == 4
    assert llm.calls[0]["tools"][0]["function"]["parameters"] == {"type": "object"}


def test_conversation_with_tools() -> None:
    llm = PlayedLLM()
    messages = [
        *HI,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "text", "text": "So"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "4", "is_error": True},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    with serving(llm) as url, client(url) as api:
        api.messages.create(model="m", max_tokens=9, messages=messages)
    _, turn, result, last = llm.calls[0]["messages"]
    assert (turn["content"], turn["reasoning_content"]) == ("So", "Hm")
    assert turn["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert (result["role"], result["content"]) == ("tool", "Error: 4")
    assert last == {"role": "user", "content": "And?"}


@pytest.mark.parametrize(
    ("reason", "stop", "expected"),
    [("length", None, "max_tokens"), ("stop", "END", "stop_sequence"), ("stop", 3, "end_turn")],
)
def test_why_it_ended(reason: str, stop: Any, expected: str) -> None:
    with (
        serving(PlayedLLM(finish_reason=reason, stop_reason=stop)) as url,
        client(url) as api,
    ):
        answer = api.messages.create(model="m", max_tokens=9, messages=HI)
    assert answer.stop_reason == expected
    assert answer.stop_sequence == (stop if isinstance(stop, str) else None)


def test_errors_are_the_package_s() -> None:
    with serving() as url, client(url) as api:
        with pytest.raises(anthropic.NotFoundError):
            api.messages.create(model="other", max_tokens=9, messages=HI)
        for block, words in (
            ({"type": "sound"}, "must be one of text, image, document, search_result"),
            ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "source.type must be"),
            ({"type": "image", "source": {"type": "base64", "data": ""}}, "source.media_type"),
            ({"type": "image"}, "source"),
        ):
            messages: Any = [{"role": "user", "content": [block]}]
            with pytest.raises(anthropic.BadRequestError, match=words):
                api.messages.create(model="m", max_tokens=9, messages=messages)
        with pytest.raises(anthropic.BadRequestError, match="stop_sequences"):
            api.messages.create(model="m", max_tokens=9, messages=HI, stop_sequences=[1])
        answer = httpx.post(f"{url}/v1/messages", json={"model": "m", "messages": HI})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "max_tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_arguments_of_a_call_that_nobody_can_read(stream: bool) -> None:
    deep = [{**CALL[0], "function": {"name": "f", "arguments": "[" * 100_000}}]
    body = {"model": "m", "max_tokens": 9, "messages": HI, "stream": stream}
    with serving(PlayedLLM([{"tool_calls": deep}])) as url:
        answer = httpx.post(f"{url}/v1/messages", json=body)
    if stream:
        assert events(answer.text)[-1][0] == "message_stop"
    else:
        assert answer.json()["content"][0]["input"] == {}


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    llm = PlayedLLM(error=(500, "the engine has failed"), fails_after=1)
    body = {"model": "m", "max_tokens": 9, "messages": HI, "stream": True}
    with serving(llm) as url:
        found = events(httpx.post(f"{url}/v1/messages", json=body).text)
    assert found[0][0] == "message_start"
    assert found[-1][0] == "error"
    assert found[-1][1]["error"]["message"] == "the engine has failed"


def test_count_tokens(tmp_path: Path) -> None:
    llm = PlayedLLM(folder=tokenizer_folder(tmp_path))
    with serving(llm) as url, client(url) as api:
        short = api.messages.count_tokens(model="m", messages=HI).input_tokens
        long = api.messages.count_tokens(model="m", messages=[HI[0], HI[0]]).input_tokens
    assert 0 < short < long
