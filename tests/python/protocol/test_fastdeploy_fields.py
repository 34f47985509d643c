"""What FastDeploy's server knows beyond OpenAI's fields: prompts of ids, and ids in answers."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import LLM
from headrace.protocol.chat import ChatRequest, read_chat
from headrace.protocol.chat_answer import ChatStream, chat_answer
from headrace.protocol.completion_answer import CompletionStream, completion_answer
from headrace.protocol.completions import read_completion
from headrace.protocol.errors import ProtocolError

HEAD: dict[str, Any] = {"id": "x", "model": "m", "created": 5}
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def answered(llm: LLM, request: ChatRequest) -> dict[str, Any]:
    outputs = llm.chat(**request.call_arguments(), use_tqdm=False)
    assert outputs[0].error_code == 200, outputs[0].error_msg
    choice: dict[str, Any] = chat_answer(request, outputs, **HEAD)["choices"][0]
    return choice


def test_prompts_of_ids(llm: LLM) -> None:
    body = {"prompt_token_ids": [40, 41, 42], "max_tokens": 2, "return_token_ids": True}
    for messages in ({}, {"messages": []}, {"messages": HELLO}):
        request = read_chat({**body, **messages})
        assert bool(request.notes) == bool(messages.get("messages"))
        choice = answered(llm, request)
        assert choice["prompt_token_ids"] == choice["message"]["prompt_token_ids"] == [40, 41, 42]
        assert len(choice["message"]["completion_token_ids"]) == 2
    completion = read_completion({**body, "prompt": "x"})
    assert completion.prompts == [[40, 41, 42]]
    assert completion.notes == ["prompt has no effect: prompt_token_ids is the prompt"]
    several = read_completion({**body, "prompt_token_ids": [[4], [5]]})
    assert several.prompts == [[4], [5]]


def test_answers_that_have_begun(llm: LLM) -> None:
    """completion_token_ids follow the prompt that the template makes."""
    fields = {"messages": HELLO, "max_tokens": 2, "return_token_ids": True}
    plain = answered(llm, read_chat({**fields, "enable_thinking": True}))
    begun = read_chat({**fields, "enable_thinking": True, "completion_token_ids": [40, 41]})
    choice = answered(llm, begun)
    assert choice["prompt_token_ids"] == [*plain["prompt_token_ids"], 40, 41]
    ids = read_chat({"prompt_token_ids": [50], "completion_token_ids": [51], "max_tokens": 1})
    assert ids.prompt_size == 2
    assert ids.call_arguments()["messages"] == [
        {"prompt_token_ids": [50], "completion_token_ids": [51]}
    ]
    # With tools, which the template shows.
    tools = read_chat({**fields, "tools": [TOOL], "completion_token_ids": [40]})
    (item,) = tools.call_arguments()["messages"]
    assert (item["tools"], item["messages"]) == ([TOOL], HELLO)


def test_a_message_may_be_the_prompt(llm: LLM) -> None:
    request = read_chat(
        {"messages": HELLO, "disable_chat_template": True, "return_token_ids": True}
    )
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    message = answered(llm, request)["message"]
    assert message["prompt_token_ids"] == tokenizer.encode("Hello")
    noted = read_chat(
        {"messages": HELLO, "disable_chat_template": True, "chat_template_kwargs": {"a": 1}}
    )
    assert "no template is used" in noted.notes[0]


def test_streams_tell_ids_where_asked(llm: LLM) -> None:
    request = read_chat({"messages": HELLO, "max_tokens": 3, "stream": True,
                         "return_token_ids": True})  # fmt: skip
    message = answered(llm, request)["message"]
    stream, deltas = ChatStream(request, **HEAD), []
    for updates in llm.chat(**request.call_arguments(), stream=True):
        for update in filter(None, updates):
            deltas += [piece["choices"][0]["delta"] for piece in stream.pieces(update)]
    assert deltas[0]["prompt_token_ids"] == message["prompt_token_ids"]
    assert deltas[0]["prompt_tokens"] == message["prompt_tokens"]
    told = [token for delta in deltas[1:] for token in delta["completion_token_ids"]]
    assert told == message["completion_token_ids"]
    assert "".join(d["completion_tokens"] for d in deltas[1:]) == message["completion_tokens"]
    completion = read_completion({"prompt": "ab", "max_tokens": 3, "stream": True,
                                  "return_token_ids": True})  # fmt: skip
    outputs = llm.generate("ab", completion.params, use_tqdm=False)
    whole = completion_answer(completion, outputs, **HEAD)["choices"][0]
    pieces = []
    writer = CompletionStream(completion, **HEAD)
    for updates in llm.generate("ab", completion.params, stream=True):
        for update in filter(None, updates):
            pieces += [piece["choices"][0] for piece in writer.pieces(0, update)]
    assert pieces[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    told = [token for piece in pieces for token in piece["completion_token_ids"]]
    assert told == whole["completion_token_ids"]


def test_no_limit_of_thinking() -> None:
    for given, limit in ((-1, None), (5, 5)):
        params = read_chat({"messages": HELLO, "reasoning_max_tokens": given}).params
        assert params.reasoning_max_tokens == limit


PICTURE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_token_ids": [1, "a"]}, "prompt_token_ids"),
        ({"prompt_token_ids": "a"}, "prompt_token_ids"),
        ({"prompt_token_ids": [True]}, "prompt_token_ids"),
        ({"prompt_token_ids": [1], "messages": PICTURE}, "prompt_token_ids"),
        ({"prompt_token_ids": [1], "tools": [TOOL]}, "tools"),
        ({"prompt_token_ids": []}, "messages"),
        ({"messages": HELLO, "completion_token_ids": [1.5]}, "completion_token_ids"),
        ({"messages": HELLO * 2, "disable_chat_template": True}, "messages"),
        ({"messages": PICTURE, "disable_chat_template": True}, "messages"),
        ({"messages": HELLO, "reasoning_max_tokens": -2}, "reasoning_max_tokens"),
        ({"messages": HELLO, "mm_hashes": ["a"]}, "mm_hashes"),
        ({"messages": HELLO, "include_draft_logprobs": True}, "include_draft_logprobs"),
        ({"messages": HELLO, "disaggregate_info": {}}, "disaggregate_info"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_chat(fields)
    assert caught.value.param == param


def test_hints_are_noted() -> None:
    hints = {"max_streaming_response_tokens": 2, "collect_metrics": True, "trace_context": "x"}
    notes = read_chat({"messages": HELLO, **hints, "include_draft_logprobs": False}).notes
    assert [note.split(" has no effect")[0] for note in notes] == list(hints)
