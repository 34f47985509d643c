"""instructor against headrace serve."""

from __future__ import annotations

from typing import Any

import pytest

instructor = pytest.importorskip("instructor")
openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

ASK: dict[str, Any] = {
    "model": "tiny", "messages": [{"role": "user", "content": "What is 12 + 7?"}],
    "temperature": 0, "max_tokens": 200, "max_retries": 0,
}  # fmt: skip


class Sum(pydantic.BaseModel, extra="forbid"):
    a: int = pydantic.Field(ge=0, le=9)
    b: int = pydantic.Field(ge=0, le=9)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_models_come_back(url: str, mode: str) -> None:
    raw = openai.OpenAI(base_url=url, api_key="sesame", max_retries=0)
    client = instructor.from_openai(raw, mode=instructor.Mode[mode])
    answer = client.chat.completions.create(response_model=Sum, **ASK)
    assert isinstance(answer, Sum)
    parts = list(client.chat.completions.create_partial(response_model=Sum, **ASK))
    assert (parts[-1].a, parts[-1].b) == (answer.a, answer.b)


def test_errors(url: str) -> None:
    raw = openai.OpenAI(base_url=url, api_key="wrong", max_retries=0)
    client = instructor.from_openai(raw)
    with pytest.raises(Exception, match="key"):
        client.chat.completions.create(response_model=Sum, **ASK)
