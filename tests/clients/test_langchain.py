"""langchain-openai against headrace serve."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

langchain_openai = pytest.importorskip("langchain_openai")
openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

ASK = "What is 12 + 7?"


class Sum(pydantic.BaseModel, extra="forbid"):
    """Two digits to be added."""

    a: int = pydantic.Field(ge=0, le=9)
    b: int = pydantic.Field(ge=0, le=9)


@pytest.fixture
def llm(url: str) -> Any:
    return langchain_openai.ChatOpenAI(
        base_url=url, api_key="sesame", model="tiny", temperature=0, max_tokens=200, max_retries=0
    )


def test_chat(llm: Any) -> None:
    answer = llm.invoke([("user", ASK)])
    assert "19" in answer.content
    assert answer.usage_metadata["output_tokens"] > 0
    pieces = [piece.content for piece in llm.stream(ASK)]
    assert "".join(pieces) == answer.content
    several = asyncio.run(llm.abatch([ASK, "What is 2 + 2?"]))
    assert several[0].content == answer.content
    assert several[1].content != answer.content


def test_a_conversation_with_a_tool(llm: Any) -> None:
    bound = llm.bind_tools([Sum], tool_choice="Sum")
    answer = bound.invoke(ASK)
    (call,) = answer.tool_calls
    assert call["name"] == "Sum"
    assert Sum(**call["args"])
    whole = None
    for piece in bound.stream(ASK):
        whole = piece if whole is None else whole + piece
    assert whole is not None
    assert whole.tool_calls[0]["args"] == call["args"]
    messages = [("user", ASK), answer, {"role": "tool", "tool_call_id": call["id"], "content": "9"}]
    assert isinstance(llm.bind_tools([Sum]).invoke(messages).content, str)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(llm: Any, method: str) -> None:
    assert isinstance(llm.with_structured_output(Sum, method=method).invoke(ASK), Sum)


def test_errors(llm: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="other"):
        llm.bind(model="other").invoke(ASK)
    with pytest.raises(openai.BadRequestError):
        llm.bind(temperature=-1).invoke(ASK)
    with pytest.raises(openai.AuthenticationError):
        langchain_openai.ChatOpenAI(
            base_url=str(llm.openai_api_base), api_key="wrong", model="tiny", max_retries=0
        ).invoke(ASK)
