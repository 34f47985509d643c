"""Results written as OpenAI's objects; a stream says the same as the whole answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace import LLM, CompletionOutput, RequestOutput
from headrace.llm.outputs import Logprob, RequestMetrics
from headrace.parsers import FunctionCall, ToolCall
from headrace.protocol.chat import read_chat
from headrace.protocol.chat_answer import ChatStream, chat_answer
from headrace.protocol.completion_answer import CompletionStream, completion_answer
from headrace.protocol.completions import read_completion
from headrace.protocol.timings import Timings

HEAD: dict[str, Any] = {"id": "x", "model": "m", "created": 5}
HELLO = [{"role": "user", "content": "Hello"}]


def run_chat(llm: LLM, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole answer, and the pieces of the same one as a stream."""
    request = read_chat({"messages": HELLO, **fields})
    arguments = request.call_arguments()
    whole = chat_answer(request, llm.chat(**arguments, use_tqdm=False), **HEAD)
    stream = ChatStream(request, **HEAD)
    pieces = []
    for updates in llm.chat(**arguments, stream=True):
        for update in updates:
            if update is not None:
                pieces.extend(stream.pieces(update))
    last = stream.last_piece()
    return whole, pieces + ([] if last is None else [last])


def test_a_chat_and_its_stream(llm: LLM) -> None:
    fields = {"max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    whole, pieces = run_chat(llm, **fields, return_token_ids=True)
    (choice,) = whole["choices"]
    assert (whole["id"], whole["object"], whole["created"]) == ("x", "chat.completion", 5)
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 5 == len(choice["token_ids"])
    assert whole["usage"]["total_tokens"] == 5 + whole["usage"]["prompt_tokens"]
    assert whole["usage"]["prompt_tokens"] == len(choice["prompt_token_ids"])

    first = pieces[0]["choices"][0]["delta"]
    assert (first["role"], first["content"]) == ("assistant", "")
    deltas = [piece["choices"][0] for piece in pieces[:-1]]
    assert "".join(d["delta"].get("content", "") for d in deltas) == choice["message"]["content"]
    assert [d["finish_reason"] for d in deltas][-1] == "length"
    assert [i for d in deltas for i in d.get("token_ids", ())] == choice["token_ids"]
    assert pieces[-1]["choices"] == []
    assert pieces[-1]["usage"] == whole["usage"]
    assert all(piece["object"] == "chat.completion.chunk" for piece in pieces)


def test_usage_is_said_where_asked_for(llm: LLM) -> None:
    _, plain = run_chat(llm, max_tokens=3, stream=True)
    assert all("usage" not in piece for piece in plain)
    _, some = run_chat(llm, max_tokens=3, stream=True, stream_options={"include_usage": True})
    assert [piece["usage"] is None for piece in some] == [True] * (len(some) - 1) + [False]
    options = {"include_usage": True, "continuous_usage_stats": True}
    whole, every = run_chat(llm, max_tokens=3, stream=True, stream_options=options)
    assert every[-2]["usage"] == whole["usage"]


def test_timings_are_said_where_asked_for(llm: LLM) -> None:
    options = {"include_usage": True, "include_timings": True}
    whole, pieces = run_chat(llm, max_tokens=3, stream=True, stream_options=options)
    assert all("timings" not in piece for piece in pieces[:-1])
    timings = pieces[-1]["timings"]
    assert timings["prompt_n"] == whole["usage"]["prompt_tokens"]
    assert timings["predicted_n"] == 3
    assert set(timings) >= {"prompt_ms", "predicted_ms", "predicted_per_second"}


def test_timings_are_the_engines() -> None:
    timings = Timings()
    timings.note(None)
    assert timings.counts(7, 3)["predicted_per_second"] is None
    first = RequestMetrics(inference_start_time=5.0, engine_recv_first_token_time=5.5)
    timings.note(first)
    first.engine_recv_latest_token_time = 6.5
    timings.note(first)
    counts = timings.counts(7, 3)
    assert (counts["prompt_ms"], counts["prompt_per_second"]) == (500.0, 14.0)
    assert (counts["predicted_ms"], counts["predicted_per_second"]) == (1000.0, 2.0)


def test_several_outputs_count_their_prompt_once(llm: LLM) -> None:
    whole, pieces = run_chat(
        llm, n=3, max_tokens=2, stream=True, stream_options={"include_usage": True}
    )
    one, _ = run_chat(llm, max_tokens=2)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert whole["usage"]["completion_tokens"] == 6
    assert pieces[-1]["usage"] == whole["usage"]


def test_log_probabilities_of_a_chat(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm(enable_logprob=True)
    whole, pieces = run_chat(llm, max_tokens=3, logprobs=True, top_logprobs=2, stream=True)
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    for entry in content:
        assert entry["bytes"] == list(entry["token"].encode())
        assert len(entry["top_logprobs"]) == 2
        assert entry["top_logprobs"][0]["logprob"] >= entry["top_logprobs"][1]["logprob"]
    streamed = [
        entry
        for piece in pieces
        for entry in (piece["choices"][0]["logprobs"] or {}).get("content", ())
    ]
    assert streamed == content
    whole, _ = run_chat(llm, max_tokens=3, logprobs=True)
    assert [e["top_logprobs"] for e in whole["choices"][0]["logprobs"]["content"]] == [[], [], []]


def test_minus_infinity_is_a_number_in_json() -> None:
    part = CompletionOutput(token_ids=[1], logprobs=[{1: Logprob(float("-inf"), 1, "a")}])
    request = read_chat({"messages": HELLO, "logprobs": True})
    answer = chat_answer(request, [RequestOutput("r", outputs=part)], **HEAD)
    assert "-9999.0" in json.dumps(answer, allow_nan=False)


def test_reasoning_and_tool_calls() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    part = CompletionOutput(
        token_ids=[1, 2],
        text="",
        reasoning_content="hm",
        reasoning_token_num=1,
        tool_calls=[call],
        finish_reason="stop",
    )
    output = RequestOutput("r", outputs=part, prompt_token_ids=[1])
    request = read_chat({"messages": HELLO})
    (choice,) = chat_answer(request, [output], **HEAD)["choices"]
    assert choice["message"]["tool_calls"] == [call]
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"] == "hm"
    assert choice["finish_reason"] == "tool_calls"
    stream = ChatStream(request, **HEAD)
    calling = CompletionOutput(tool_calls=[{"index": 0, **call}])
    ending = CompletionOutput(token_ids=[2], finish_reason="stop")
    pieces = stream.pieces(RequestOutput("r", outputs=calling))
    pieces += stream.pieces(RequestOutput("r", outputs=ending))
    assert pieces[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "add"
    assert pieces[2]["choices"][0]["finish_reason"] == "tool_calls"


def run_completion(llm: LLM, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    request = read_completion(fields)
    prompts = request.call_prompts()
    outputs = llm.generate(prompts, request.params, use_tqdm=False)
    whole = completion_answer(request, outputs, **HEAD)
    stream = CompletionStream(request, **HEAD)
    pieces = []
    if not request.echo:
        for updates in llm.generate(prompts, request.params, stream=True):
            for place, update in enumerate(updates):
                if update is not None:
                    pieces.extend(stream.pieces(place // request.params.n, update))
    last = stream.last_piece()
    return whole, pieces + ([] if last is None else [last])


def test_completions_and_their_streams(llm: LLM) -> None:
    whole, pieces = run_completion(
        llm,
        prompt=["ab", "cde"],
        n=2,
        max_tokens=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    texts = ["", "", "", ""]
    for piece in pieces[:-1]:
        (choice,) = piece["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert pieces[-1]["usage"] == whole["usage"]
    one = run_completion(llm, prompt="ab", max_tokens=2)[0]["usage"]["prompt_tokens"]
    two = run_completion(llm, prompt="cde", max_tokens=2)[0]["usage"]["prompt_tokens"]
    assert whole["usage"]["prompt_tokens"] == one + two


def test_columns_of_log_probabilities(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm(enable_logprob=True)
    whole, pieces = run_completion(llm, prompt="abc", max_tokens=3, logprobs=2, stream=True)
    columns = whole["choices"][0]["logprobs"]
    assert [len(columns[name]) for name in columns] == [3, 3, 3, 3]
    assert columns["text_offset"][0] == 0
    assert all(len(position) >= 2 for position in columns["top_logprobs"])
    streamed = [piece["choices"][0]["logprobs"] for piece in pieces]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert [value for part in streamed if part for value in part[name]] == columns[name]


@pytest.mark.parametrize("logprobs", [None, 1])
def test_echo(make_llm: Callable[..., LLM], logprobs: int | None) -> None:
    llm = make_llm(enable_logprob=True)
    plain, _ = run_completion(llm, prompt="abc", max_tokens=2)
    whole, _ = run_completion(llm, prompt="abc", max_tokens=2, echo=True, logprobs=logprobs)
    (choice,) = whole["choices"]
    assert choice["text"] == "abc" + plain["choices"][0]["text"]
    if logprobs is not None:
        columns = choice["logprobs"]
        assert columns["token_logprobs"][0] is None
        assert len(columns["tokens"]) == whole["usage"]["total_tokens"]


def test_more_of_a_call_s_arguments() -> None:
    """Only the first piece names the call, as in OpenAI's streams."""
    stream = ChatStream(read_chat({"messages": HELLO, "stream": True}), **HEAD)
    calls = [ToolCall("c", FunctionCall("f", '{"a"')), ToolCall("", FunctionCall("", ": 1}"))]
    total = RequestOutput("r", outputs=CompletionOutput())
    deltas = []
    for call in calls:
        update = RequestOutput("r", outputs=CompletionOutput(tool_calls=[call]))
        total.accumulate(update)
        deltas.append(stream.pieces(update)[-1]["choices"][0]["delta"]["tool_calls"])
    function = {"name": "f", "arguments": '{"a"'}
    assert deltas == [
        [{"id": "c", "type": "function", "index": 0, "function": function}],
        [{"index": 0, "function": {"arguments": ": 1}"}}],
    ]
    assert total.outputs is not None
    assert total.outputs.tool_calls == [ToolCall("c", FunctionCall("f", '{"a": 1}'))]
