"""litellm against headrace serve."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

litellm = pytest.importorskip("litellm")
pydantic = pytest.importorskip("pydantic")

ASK = [{"role": "user", "content": "What is 12 + 7?"}]
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": DIGIT}, "required": ["a"],
                       "additionalProperties": False},
    },
}  # fmt: skip


class Sum(pydantic.BaseModel, extra="forbid"):
    a: int = pydantic.Field(ge=0, le=9)


@pytest.fixture
def common(url: str) -> dict[str, Any]:
    return {
        "model": "openai/tiny", "api_base": url, "api_key": "sesame", "messages": ASK,
        "temperature": 0, "max_tokens": 200, "num_retries": 0,
    }  # fmt: skip


def test_chat(common: dict[str, Any]) -> None:
    answer = litellm.completion(**common)
    text = answer.choices[0].message.content
    assert "19" in text
    assert answer.usage.completion_tokens > 0
    pieces = [
        piece.choices[0].delta.content or "" for piece in litellm.completion(**common, stream=True)
    ]
    assert "".join(pieces) == text
    other = asyncio.run(litellm.acompletion(**common))
    assert other.choices[0].message.content == text


def test_tools(common: dict[str, Any]) -> None:
    choice = {"type": "function", "function": {"name": "add"}}
    whole = litellm.completion(**common, tools=[TOOL], tool_choice=choice)
    (call,) = whole.choices[0].message.tool_calls
    assert call.function.name == "add"
    assert 0 <= json.loads(call.function.arguments)["a"] <= 9
    pieces = list(litellm.completion(**common, tools=[TOOL], tool_choice=choice, stream=True))
    built = litellm.stream_chunk_builder(pieces, messages=ASK)
    assert built.choices[0].message.tool_calls[0].function.arguments == call.function.arguments


def test_structured_output(common: dict[str, Any]) -> None:
    answer = litellm.completion(**common, response_format=Sum)
    assert Sum.model_validate_json(answer.choices[0].message.content)


def test_errors(common: dict[str, Any]) -> None:
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**common, "model": "openai/other"})
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**{**common, "temperature": -1})
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(**{**common, "api_key": "wrong"})
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**{**common, "messages": [{"role": "user", "content": "x " * 3000}]})


def test_the_fallback_for_long_prompts_starts(common: dict[str, Any]) -> None:
    """A prompt that is too long goes to the model that the router has for such."""
    settings = {name: common[name] for name in ("model", "api_base", "api_key")}
    router = litellm.Router(
        model_list=[
            {"model_name": "small", "litellm_params": settings},
            {
                "model_name": "large",
                "litellm_params": {"model": "openai/large", "mock_response": "the large one"},
            },
        ],
        context_window_fallbacks=[{"small": ["large"]}],
        num_retries=0,
    )
    long = [{"role": "user", "content": "x " * 3000}]
    answer = router.completion(model="small", messages=long, max_tokens=20)
    assert answer.choices[0].message.content == "the large one"
    short = router.completion(model="small", messages=ASK, max_tokens=20)
    assert short.choices[0].message.content != "the large one"
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**{**common, "messages": long})
