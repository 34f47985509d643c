"""The ollama package against headrace serve."""

from __future__ import annotations

import json
from typing import Any

import pytest

ollama = pytest.importorskip("ollama")

ASK = [{"role": "user", "content": "What is 12 + 7?"}]
OPTIONS = {"temperature": 0, "num_predict": 200}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
SUM = {
    "type": "object", "properties": {"a": DIGIT}, "required": ["a"], "additionalProperties": False,
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "add", "parameters": SUM}}


@pytest.fixture
def client(url: str) -> Any:
    host = url.removesuffix("/v1")
    return ollama.Client(host=host, headers={"Authorization": "Bearer sesame"})


def test_models(client: Any) -> None:
    (model,) = client.list().models
    assert (model.model, model.details.format) == ("tiny", "safetensors")
    shown = client.show("tiny")
    assert shown.capabilities == ["completion", "tools"]  # as the server's template has it
    assert "<tool_call>" in shown.template
    assert client.ps().models[0].context_length == 1024


def test_chat(client: Any) -> None:
    answer = client.chat("tiny", messages=ASK, options=OPTIONS, keep_alive="5m")
    assert "19" in answer.message.content
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert 0 < answer.prompt_eval_duration + answer.eval_duration <= answer.total_duration
    pieces = list(client.chat("tiny:latest", messages=ASK, options=OPTIONS, stream=True))
    assert "".join(piece.message.content for piece in pieces) == answer.message.content
    assert (pieces[-1].done, pieces[-1].eval_count) == (True, answer.eval_count)
    talked = [*ASK, answer.message, {"role": "user", "content": "What is 2 + 2?"}]
    assert client.chat("tiny", messages=talked, tools=[TOOL], options=OPTIONS).eval_count > 0


@pytest.mark.parametrize("form", ["json", SUM])
def test_formats(client: Any, form: Any) -> None:
    answer = client.chat("tiny", messages=ASK, format=form, options=OPTIONS)
    if form is SUM:
        assert 0 <= json.loads(answer.message.content)["a"] <= 9
    else:
        assert answer.message.content.startswith("{")


def test_generate_and_embed(client: Any) -> None:
    answer = client.generate("tiny", "What is 12 + 7?", options=OPTIONS)
    assert "19" in answer.response
    pieces = client.generate("tiny", "What is 12 + 7?", options=OPTIONS, stream=True)
    assert "".join(piece.response for piece in pieces) == answer.response
    raw = client.generate("tiny", "User: What is 12 + 7?\nAssistant: ", raw=True, options=OPTIONS)
    assert "19" in raw.response
    first, other = client.embed("tiny", ["one", "two"]).embeddings
    assert first != other
    assert sum(value * value for value in first) == pytest.approx(1, abs=1e-3)


def test_errors(client: Any, url: str) -> None:
    for status, name, ask in (
        (404, "other", lambda: client.chat("other", messages=ASK)),
        (400, "temperature", lambda: client.chat("tiny", ASK, options={"temperature": -1})),
        (400, "pull", lambda: client.pull("other")),
    ):
        with pytest.raises(ollama.ResponseError, match=name) as failed:
            ask()
        assert failed.value.status_code == status
    with pytest.raises(ollama.ResponseError, match="key"):
        ollama.Client(host=url.removesuffix("/v1")).list()
