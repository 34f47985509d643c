"""Bodies of any kind through the engine: each gets an answer, and none ends the job."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace import shipped_model
from headrace.batch.answers import Answer, LocalAnswerer
from headrace.batch.local_engine import LocalEngine
from headrace.batch.tasks import CHAT, COMPLETIONS
from headrace.llm.async_llm import AsyncLLM

HELLO = [{"role": "user", "content": "Hello"}]


def answers(*requests: tuple[str, dict[str, Any]]) -> list[Answer]:
    async def run() -> list[Answer]:
        async with AsyncLLM.load(shipped_model(), max_model_len=256, enable_logprob=True) as llm:
            answerer = LocalAnswerer(LocalEngine(llm), ["tiny", "other-name"])
            return await asyncio.gather(*(answerer.answer(url, body) for url, body in requests))

    return asyncio.run(run())


def nested(depth: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_hostile_bodies_cost_nobody_else_anything() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": nested(300)}}
    loop = "{% for i in range(100000000) %}x{% endfor %}"
    strange: list[tuple[str, dict[str, Any]]] = [  # which the engine may be able to serve
        (COMPLETIONS, {"prompt": "a\0b"}),
        (COMPLETIONS, {"prompt": "a", "stop": ["\ud800"]}),
        (COMPLETIONS, {"prompt": "a", "guided_regex": "(a{1,1000}){1,1000}"}),
        (COMPLETIONS, {"prompt": "a", "guided_json": nested(300)}),
        (COMPLETIONS, {"prompt": "a", "guided_grammar": "start: start"}),
        (CHAT, {"messages": HELLO, "tools": [tool], "max_tokens": 1}),
    ]
    odd = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "nothing"}}}
    hostile: list[tuple[str, dict[str, Any]]] = [
        (COMPLETIONS, {}),
        (COMPLETIONS, {"prompt": ""}),
        (COMPLETIONS, {"prompt": "\ud800"}),
        (COMPLETIONS, {"prompt": "a" * 1_000_000}),
        (COMPLETIONS, {"prompt": [-1]}),
        (COMPLETIONS, {"prompt": [10**30]}),
        (COMPLETIONS, {"prompt": ["fine", [2**31]]}),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 10**30}),
        (COMPLETIONS, {"prompt": "a", "temperature": float("nan")}),
        (COMPLETIONS, {"prompt": "a", "logit_bias": {"-1": 1}}),
        (COMPLETIONS, {"prompt": "a", "n": 10**9}),
        (COMPLETIONS, {"prompt": "a", "model": "missing"}),
        (COMPLETIONS, {"prompt": "a", "stream": True}),
        (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        (CHAT, {"messages": HELLO, "chat_template": "{{ 1 / 0 }}"}),
        (CHAT, {"messages": HELLO, "chat_template": loop}),
        (CHAT, {"messages": HELLO, "chat_template": "{{"}),
        (CHAT, {"messages": HELLO, "chat_template_kwargs": {"messages": []}}),
        (CHAT, {"messages": HELLO, "tools": [tool], "tool_choice": "required"}),
    ]
    fine: list[tuple[str, dict[str, Any]]] = [
        (COMPLETIONS, {"prompt": "User: What is 2 + 2?\nAssistant: ", "temperature": 0}),
        (CHAT, {"messages": HELLO, "model": "other-name", "max_tokens": 3, "user": "u",
                "response_format": odd}),
    ]  # fmt: skip
    done = answers(*hostile, *strange, *fine)
    for (_, body), answer in zip(hostile, done, strict=False):
        assert answer.status in (400, 404), (str(body)[:200], answer)
        assert answer.body["error"]["message"]
    assert {answer.status for answer in done[len(hostile) :]} <= {200, 400}
    first, second = done[-2:]
    assert first.status == second.status == 200
    assert first.body["choices"][0]["text"] == "2 + 2 = 4."
    assert first.body["id"].removeprefix("cmpl-") == first.request_id.removeprefix("req_")
    assert first.tokens[1] == first.body["usage"]["completion_tokens"] > 0
    assert [note.split(":")[0] for note in second.notes][1:] == ["the JSON schema"]
    assert second.body["model"] == "tiny"
