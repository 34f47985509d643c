"""What quantized weights may cost: perplexity on dialogues of an unseen seed, held-out answers."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from conftest import ROOT

DIALOGUES = 150


def measure(settings: dict[str, Any]) -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import quality  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return quality.measure(settings, DIALOGUES)


@pytest.fixture(scope="module")
def plain() -> Any:
    return measure({})


# One point of a hundred is two of the 200 questions.
@pytest.mark.parametrize(("name", "growth", "questions"), [("wint8", 1.002, 2), ("wint4", 1.02, 4)])
def test_quality(name: str, growth: float, questions: int, plain: Any) -> None:
    found = measure({"quantization": name})
    assert plain.perplexity < 6.0  # half of it are random questions
    assert found.perplexity <= growth * plain.perplexity
    assert found.right >= plain.right - questions
