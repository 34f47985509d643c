"""Real weights: the tokens that transformers gives in float32, for whole chats and texts.

HEADRACE_REAL_WEIGHTS names the folder that prepare.py makes; `tests/run real_weights` does both."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prompts import CHATS, NEW_TOKENS, TEXTS

from headrace import LLM, RequestOutput, SamplingParams

FOLDER = os.environ.get("HEADRACE_REAL_WEIGHTS")
pytestmark = pytest.mark.skipif(not FOLDER, reason="HEADRACE_REAL_WEIGHTS isn't set")
GREEDY = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(str(FOLDER), dtype="float32", max_model_len=2048) as model:
        yield model


def expected(kind: str) -> list[dict[str, Any]]:
    return json.loads((Path(str(FOLDER)) / "answers.json").read_text())[kind]


def compare(outputs: list[RequestOutput], answers: list[dict[str, Any]]) -> None:
    for output, answer in zip(outputs, answers, strict=True):
        assert output.prompt_token_ids == answer["prompt"]
        assert output.outputs is not None
        assert output.outputs.token_ids == answer["tokens"], (
            f"transformers' smallest gap was {answer['smallest_gap']}: {output.outputs.text!r}"
        )


def test_chats(llm: LLM) -> None:
    compare(llm.chat(CHATS, GREEDY, use_tqdm=False), expected("chats"))


def test_texts(llm: LLM) -> None:
    compare(llm.generate(TEXTS, GREEDY, use_tqdm=False), expected("texts"))


def test_the_answers_are_worth_comparing() -> None:
    assert (len(CHATS), len(TEXTS)) == (12, 6)
    for answer in expected("chats") + expected("texts"):
        assert answer["tokens"]
        assert answer["smallest_gap"] > 1e-4  # a hundred times what float32 rounds away here
