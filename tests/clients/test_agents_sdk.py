"""OpenAI's Agents SDK against headrace serve, by chat completions and by responses."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

agents = pytest.importorskip("agents")
openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

ASK = "What is 12 + 7?"
Digit = Annotated[int, pydantic.Field(ge=0, le=9)]


class Sum(pydantic.BaseModel):
    a: Digit
    sure: bool


class Called:
    """A tool that the model has for its first turn."""

    def __init__(self) -> None:
        self.days: list[int] = []

        @agents.function_tool(is_enabled=lambda *_: not self.days)
        def weather(day: Digit) -> str:
            """The weather on a day."""
            self.days.append(day)
            return "sunny"

        self.tool = weather


@pytest.fixture(params=["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def model(url: str, request: pytest.FixtureRequest) -> Any:
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=url, api_key="sesame", max_retries=0)
    return getattr(agents, request.param)(model="tiny", openai_client=client)


def run(model: Any, streams: bool = False, choice: str | None = None, **agent: Any) -> Any:
    """The finished run of an agent."""
    settings = agents.ModelSettings(
        max_tokens=300,
        temperature=0,
        tool_choice=choice,
        parallel_tool_calls=None if choice is None else False,
        include_usage=True,
    )
    made = agents.Agent(name="A", model=model, model_settings=settings, **agent)

    async def go() -> Any:
        if not streams:
            return await agents.Runner.run(made, ASK, max_turns=3)
        result = agents.Runner.run_streamed(made, ASK, max_turns=3)
        async for _ in result.stream_events():
            pass
        return result

    return asyncio.run(go())


@pytest.mark.parametrize("streams", [False, True])
def test_a_plain_answer(model: Any, streams: bool) -> None:
    result = run(model, streams)
    assert "19" in result.final_output
    assert result.context_wrapper.usage.output_tokens > 0


@pytest.mark.parametrize("streams", [False, True])
def test_a_run_with_a_tool(model: Any, streams: bool) -> None:
    called = Called()
    result = run(model, streams, "required", tools=[called.tool])
    assert len(called.days) == 1
    kinds = [item.type for item in result.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert isinstance(result.final_output, str)


@pytest.mark.parametrize("streams", [False, True])
def test_a_run_with_an_output_type(model: Any, streams: bool) -> None:
    assert isinstance(run(model, streams, output_type=Sum).final_output, Sum)


def test_a_tool_first_and_an_output_type_then(model: Any) -> None:
    called = Called()
    result = run(model, choice="required", tools=[called.tool], output_type=Sum)
    assert len(called.days) == 1
    assert isinstance(result.final_output, Sum)


def test_errors(model: Any) -> None:
    model.model = "other"
    with pytest.raises(openai.NotFoundError, match="other"):
        run(model)
