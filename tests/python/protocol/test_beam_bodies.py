"""Bodies that ask for a beam search."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import BeamSearchParams
from headrace.protocol.chat import read_chat
from headrace.protocol.completions import read_completion
from headrace.protocol.errors import ProtocolError

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
TEXT = {"prompt": ["a", "b"], "max_tokens": 8}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


class Recorder:
    """An LLM that is asked for beams."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def beam_search(self, prompt: Any, params: BeamSearchParams, lora_request: Any = None) -> str:
        self.asked.append((prompt, params, lora_request))
        return "a request"


def test_fields_of_a_search() -> None:
    more = {"n": 3, "temperature": 0.5, "length_penalty": 2, "ignore_eos": True, "logprobs": 6}
    neutral = {"top_p": 1, "top_k": -1, "presence_penalty": 0.0, "repetition_penalty": 1.0}
    request = read_completion({**TEXT, **more, **neutral, "use_beam_search": True})
    assert request.beams == BeamSearchParams(3, 8, True, 0.5, 2)
    assert request.notes == []
    llm = Recorder()
    assert len(request.start(llm, "adapter")) == 2  # type: ignore[arg-type]
    assert llm.asked == [(prompt, request.beams, "adapter") for prompt in ("a", "b")]


def test_a_conversation_is_a_prompt() -> None:
    llm = Recorder()
    request = read_chat({**CHAT, "use_beam_search": True, "seed": 5, "enable_thinking": False})
    assert request.beams == BeamSearchParams(1, 8)
    assert [note.split(":")[0] for note in request.notes] == ["seed has no effect"]
    request.start(llm)
    ids = {"use_beam_search": True, "max_tokens": 8, "prompt_token_ids": [3, 4]}
    read_chat(ids).start(llm)
    read_chat({**CHAT, "use_beam_search": True, "completion_token_ids": [5]}).start(llm)
    first, second, third = (prompt for prompt, _, _ in llm.asked)
    kwargs = {"enable_thinking": False}
    assert first == {"messages": CHAT["messages"], "chat_template_kwargs": kwargs}
    assert second == {"prompt_token_ids": [3, 4]}
    assert third == {"messages": CHAT["messages"], "completion_token_ids": [5]}


def test_without_it_nothing_changes() -> None:
    for body in ({"length_penalty": 1.0}, {"use_beam_search": False}, {}):
        assert read_completion({**TEXT, **body}).beams is None
        assert read_chat({**CHAT, **body}).beams is None
    with pytest.raises(ProtocolError, match="length_penalty needs use_beam_search"):
        read_chat({**CHAT, "length_penalty": 2})


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"stream": True}, "stream", "stream doesn't go with"),
        ({"tools": [TOOL]}, "tools", "tools doesn't go with"),
        ({"response_format": {"type": "json_object"}}, "response_format", "doesn't go with"),
        ({"guided_regex": "a"}, "guided_regex", "doesn't go with"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "doesn't go with"),
        ({"stop": ["x"]}, "stop", "doesn't go with"),
        ({"top_p": 0.5}, "top_p", "doesn't go with"),
        ({"min_tokens": 2}, "min_tokens", "doesn't go with"),
        ({"seed": 5, "temperature": 1}, "seed", "doesn't go with"),
        ({"prompt_logprobs": 1}, "prompt_logprobs", "doesn't go with"),
        ({"max_tokens": None}, "max_tokens", "needs max_tokens"),
        ({"max_tokens": 1 << 15}, "max_tokens", "come to 32768 tokens"),
        ({"n": 128, "max_tokens": 100}, "max_tokens", "takes at most 4096"),
        ({"n": 2, "logprobs": True, "top_logprobs": 5}, "logprobs", "at most 4, twice n"),
        ({"length_penalty": 1e9}, "length_penalty", "must be in"),
    ],
)
def test_what_does_not_go_with_it(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as refused:
        read_chat({**CHAT, **fields, "use_beam_search": True})
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_tokens": 0}, "max_tokens: 0"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"max_tokens": 9000}, "n beams of max_tokens"),
    ],
)
def test_what_does_not_go_with_it_in_completions(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{name} .*use_beam_search"):
        read_completion({**TEXT, **fields, "use_beam_search": True})
