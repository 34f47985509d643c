"""Constraints are compiled once a call, however many of its requests have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace.grammar.compiler
from headrace import LLM, Engine, GuidedDecodingParams, SamplingParams
from headrace.grammar import Grammar

Make = Callable[..., LLM]
DIGITS = GuidedDecodingParams(regex="[0-9]+")


def params(guided: GuidedDecodingParams) -> SamplingParams:
    return SamplingParams(max_tokens=4, guided_decoding=guided)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, fake_engine: Any) -> list[str]:
    """The grammars that are compiled, in turn. The fake engine takes their requests."""
    texts: list[str] = []

    class Compiler:
        def compile(self, grammar: Grammar) -> tuple[Any, tuple[str, ...]]:
            texts.append(grammar.text)
            if grammar.text == "wrong":
                raise ValueError("it is wrong")
            return texts[-1], ()

    submit = fake_engine.Engine.submit
    monkeypatch.setattr(headrace.grammar.compiler, "_compiler_of", lambda tokenizer: Compiler())
    monkeypatch.setattr(Engine, "_constraint", lambda self, model, guided: guided)
    monkeypatch.setattr(
        fake_engine.Engine, "submit", lambda *args, constraint, **kwargs: submit(*args, **kwargs)
    )
    return texts


def test_once_for_all_prompts(make_llm: Make, compiled: list[str]) -> None:
    llm = make_llm()
    outputs = llm.generate(["a", "b", "c"], params(DIGITS), use_tqdm=False)
    assert [output.error_code for output in outputs] == [200] * 3
    assert compiled == ["[0-9]+"]
    llm.generate("a", params(DIGITS), use_tqdm=False)
    assert len(compiled) == 2, "once for each call"


def test_once_for_each_of_them(make_llm: Make, compiled: list[str]) -> None:
    """The same in turn with another, in parameters of their own."""
    several = [params(GuidedDecodingParams(regex=text)) for text in ("a", "b", "wrong")] * 4
    outputs = make_llm().generate(["x"] * 12, several, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200, 200, 400] * 4
    assert compiled == ["a", "b", "wrong"]


def test_a_wrong_one_for_all_fails_the_call(make_llm: Make, compiled: list[str]) -> None:
    with pytest.raises(ValueError, match="it is wrong"):
        make_llm().chat(
            [[{"role": "user", "content": "a"}]] * 3,
            params(GuidedDecodingParams(regex="wrong")),
            use_tqdm=False,
        )
    assert compiled == ["wrong"]
