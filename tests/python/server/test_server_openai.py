"""The openai package against the server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

from serving import PlayedLLM, events, serving  # noqa: E402

HI = [{"role": "user", "content": "Hi"}]
CALL = [
    {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
]
ARGUMENTS = [{"index": 0, "function": {"arguments": '{"a": 1}'}}]
TOOL = {
    "name": "f",
    "description": "Does it",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


class Answer(pydantic.BaseModel):
    name: str
    size: int


def client(url: str, **options: Any) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, **options)


@pytest.fixture
def llm() -> PlayedLLM:
    return PlayedLLM()


@pytest.fixture
def api(llm: PlayedLLM) -> Iterator[Any]:
    with serving(llm) as url, client(url) as made:
        yield made


def test_chat(api: Any, llm: PlayedLLM) -> None:
    answer = api.chat.completions.create(
        model="m", messages=HI, temperature=0.5, seed=7, stop=["x"], max_tokens=9
    )
    assert answer.choices[0].message.content == "Hello there!"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 3)
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    params = llm.calls[0]["params"]
    assert (params.temperature, params.seed, params.stop, params.max_tokens) == (0.5, 7, ["x"], 9)
    assert llm.calls[0]["messages"] == HI
    assert answer._request_id
    assert answer.id.startswith("chatcmpl-")


def test_chat_stream(api: Any) -> None:
    stream = api.chat.completions.create(
        model="m", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    pieces = list(stream)
    texts = [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]
    assert "".join(texts) == "Hello there!"
    assert pieces[0].choices[0].delta.role == "assistant"
    assert pieces[-2].choices[0].finish_reason == "stop"
    assert pieces[-1].usage.completion_tokens == 3


def test_several_outputs_with_logprobs(api: Any) -> None:
    answer = api.chat.completions.create(model="m", messages=HI, n=2, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    content = answer.choices[1].logprobs.content
    assert [entry.token for entry in content] == ["Hello", " there", "!"]
    assert content[0].top_logprobs[1].logprob == -1.5


def test_tools_and_thoughts() -> None:
    pieces = [{"reasoning_content": "Hm"}, {"tool_calls": CALL}, {"tool_calls": ARGUMENTS}]
    llm = PlayedLLM(pieces)
    with serving(llm) as url, client(url) as api:
        tools = [{"type": "function", "function": TOOL}]
        stream = api.chat.completions.create(model="m", messages=HI, tools=tools, stream=True)
        deltas = [piece.choices[0].delta for piece in stream]
        calls = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
        assert (calls[0].id, calls[0].function.name) == ("call_1", "f")
        assert "".join(call.function.arguments or "" for call in calls) == '{"a": 1}'
        assert [d.reasoning_content for d in deltas if hasattr(d, "reasoning_content")] == ["Hm"]
    assert llm.calls[0]["tools"] == tools
    assert llm.calls[0]["tool_choice"] is None


def test_tool_choices(api: Any, llm: PlayedLLM) -> None:
    chosen = {"type": "function", "function": {"name": "f"}}
    tools = [{"type": "function", "function": TOOL}]
    for choice in ("required", chosen, "none"):
        api.chat.completions.create(model="m", messages=HI, tools=tools, tool_choice=choice)
    own = {"type": "function", "name": "f"}
    api.responses.create(
        model="m", input="Hi", tools=[{"type": "function", **TOOL}], tool_choice=own
    )
    assert [call["tool_choice"] for call in llm.calls] == ["required", chosen, None, chosen]
    assert llm.calls[2]["tools"] is None


def test_parsed_output() -> None:
    llm = PlayedLLM(['{"name": "b', 'ox", "size": 3}'])
    with serving(llm) as url, client(url) as api:
        answer = api.chat.completions.parse(model="m", messages=HI, response_format=Answer)
        assert answer.choices[0].message.parsed == Answer(name="box", size=3)
        own = api.responses.parse(model="m", input="Hi", text_format=Answer)
        assert own.output_parsed == Answer(name="box", size=3)
    for call in llm.calls:
        assert call["params"].guided_decoding.json["required"] == ["name", "size"]


def test_completions(api: Any) -> None:
    answer = api.completions.create(model="m", prompt=["One", "Two"], max_tokens=5, logprobs=1)
    assert [choice.text for choice in answer.choices] == ["Hello there!"] * 2
    assert answer.choices[0].logprobs.token_logprobs == [-0.5] * 3
    assert answer.usage.prompt_tokens == 10
    pieces = list(api.completions.create(model="m", prompt=["One", "Two"], stream=True))
    for index in (0, 1):
        own = [p.choices[0].text for p in pieces if p.choices[0].index == index]
        assert "".join(own) == "Hello there!"


def test_what_a_client_leaves_to_chance(api: Any, llm: PlayedLLM) -> None:
    for fields in ({}, {"seed": 3}):
        api.completions.create(model="m", prompt=["One", "Two"], max_tokens=5, **fields)
    api.chat.completions.create(model="m", messages=HI)
    given = [call["params"] for call in llm.calls]
    assert [params.min_tokens for params in given] == [0] * 5
    # The engine draws a seed for each prompt without one.
    assert [params.seed for params in given] == [None, None, 3, 3, None]


def test_responses(api: Any, llm: PlayedLLM) -> None:
    answer = api.responses.create(
        model="m", input="Hi", instructions="Be kind", max_output_tokens=9
    )
    assert answer.output_text == "Hello there!"
    assert answer.id.startswith("resp_")
    assert (answer.status, answer.usage.output_tokens) == ("completed", 3)
    assert llm.calls[0]["messages"] == [{"role": "system", "content": "Be kind"}, *HI]
    assert llm.calls[0]["params"].max_tokens == 9


def test_responses_conversation(api: Any, llm: PlayedLLM) -> None:
    items = [
        *HI,
        {
            "type": "reasoning",
            "id": "r",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm"}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
    ]
    tools = [{"type": "function", **TOOL}]
    api.responses.create(model="m", input=items, tools=tools)
    _, turn, result = llm.calls[0]["messages"]
    assert turn["reasoning_content"] == "Hm"
    assert turn["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "c", "4")
    assert llm.calls[0]["tools"] == [{"type": "function", "function": TOOL}]


def test_responses_stream() -> None:
    pieces = [
        {"reasoning_content": "Hm"},
        "So",
        "!",
        {"tool_calls": CALL},
        {"tool_calls": ARGUMENTS},
    ]
    with (
        serving(PlayedLLM(pieces)) as url,
        client(url) as api,
        api.responses.stream(model="m", input="Hi") as stream,
    ):
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "So!"
    assert final.output[2].arguments == '{"a": 1}'
    assert final.usage.total_tokens == 10
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert texts == ["So", "!"]


def test_a_cut_response_is_incomplete() -> None:
    with serving(PlayedLLM(finish_reason="length")) as url, client(url) as api:
        answer = api.responses.create(model="m", input="Hi")
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_models(api: Any) -> None:
    assert [model.id for model in api.models.list()] == ["m"]
    assert api.models.retrieve("m").id == "m"
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("other")


def test_errors_are_the_package_s(api: Any) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        api.chat.completions.create(model="other", messages=HI)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        api.chat.completions.create(model="m", messages=HI, temperature=-1)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as unknown:
        api.chat.completions.create(model="m", messages=HI, extra_body={"temprature": 1})
    assert "temperature" in str(unknown.value)
    with pytest.raises(openai.BadRequestError) as kept:
        api.responses.create(model="m", input="Hi", previous_response_id="r")
    assert kept.value.param == "previous_response_id"


def test_a_request_that_the_engine_refuses() -> None:
    llm = PlayedLLM(error=(400, "the prompt is too long"))
    with serving(llm) as url, client(url) as api:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match="too long"):
                api.chat.completions.create(model="m", messages=HI, stream=stream)


def test_a_stream_that_breaks_off() -> None:
    llm = PlayedLLM(error=(500, "the engine has failed"), fails_after=1)
    with serving(llm) as url, client(url) as api:
        stream = api.chat.completions.create(model="m", messages=HI, stream=True)
        with pytest.raises(openai.APIError, match="the engine has failed"):
            list(stream)
        with api.responses.stream(model="m", input="Hi") as events:
            kinds = [event.type for event in events]
        assert kinds[-1] == "response.failed"


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages"])
def test_a_stream_at_which_the_server_fails(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It ends as its protocol has it, and the message of the error stays out of the log."""
    llm = PlayedLLM(["one", KeyError("my secret")])
    given: dict[str, Any] = {
        "completions": {"prompt": "Hi"},
        "responses": {"input": "Hi"},
        "messages": {"messages": HI, "max_tokens": 9},
    }.get(path, {"messages": HI})
    body = {"model": "m", "stream": True, **given}
    with serving(llm) as url:
        answer = httpx.post(f"{url}/v1/{path}", json=body)
    last = [data for _, data in events(answer.text) if data != "[DONE]"][-1]
    assert "its log has more under" in json.dumps(last)
    assert "KeyError in" in caplog.text
    assert "my secret" not in answer.text + caplog.text


def test_a_client_that_times_out_ends_its_request(llm: PlayedLLM) -> None:
    llm.held = True
    with (
        serving(llm) as url,
        client(url, timeout=openai.Timeout(60, read=3)) as api,
        pytest.raises(openai.APITimeoutError),
    ):
        api.chat.completions.create(model="m", messages=HI)
    assert llm.cancelled == 1  # the server has ended, and all its requests with it


@pytest.mark.parametrize("stream", [False, True])
def test_warnings_name_what_is_left_to_the_model(stream: bool) -> None:
    llm = PlayedLLM()
    start = llm.chat

    def chat(*args: Any, **more: Any) -> Any:
        updates = start(*args, **more)
        updates.notes.append("tools: f: format at /a is left to the model")
        return updates

    llm.chat = chat  # type: ignore[method-assign]
    with serving(llm) as url:
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body)
        assert "f: format at /a is left" in answer.headers["x-headrace-warnings"]


def test_warnings_name_fields_without_effect(api: Any) -> None:
    answer = api.chat.completions.with_raw_response.create(model="m", messages=HI, user="me")
    assert "user has no effect" in answer.headers["x-headrace-warnings"]
