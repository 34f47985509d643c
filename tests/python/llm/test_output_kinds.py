"""SamplingParams.output_kind in streams of LLM (over the fake engine)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import LLM, SamplingParams
from headrace.llm.output_kinds import OutputKinds
from headrace.llm.outputs import CompletionOutput, RequestOutput
from headrace.options.output_kind import RequestOutputKind

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind


def update(text: str, finished: bool = False) -> RequestOutput:
    output = CompletionOutput(text=text, token_ids=[ord(char) for char in text])
    return RequestOutput(request_id="a", prompt="p", outputs=output, finished=finished)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, ["a", "b", "c"]),
        (DELTA, ["a", "b", "c"]),
        (CUMULATIVE, ["a", "ab", "abc"]),
        (FINAL_ONLY, ["abc"]),
    ],
)
def test_increments_become_what_was_asked_for(
    kind: RequestOutputKind | None, expected: list[str]
) -> None:
    kinds = OutputKinds([DELTA, kind])
    told = [kinds.of({1: update(char, char == "c")}) for char in "abc"]
    outputs = [news[1] for news in told if news]
    assert [output.outputs.text for output in outputs] == expected
    assert [output.outputs.token_ids for output in outputs] == [
        [ord(char) for char in text] for text in expected
    ]
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]


def test_a_stream_has_the_kind_of_each_prompt(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm()
    params = [SamplingParams(max_tokens=9, output_kind=kind) for kind in RequestOutputKind]
    texts: list[list[str]] = [[], [], []]
    for news in llm.generate(["one two three"] * 3, params, stream=True):
        for place, output in enumerate(news):
            if output is not None:
                texts[place].append(output.outputs.text)
    (whole,) = texts[2]
    assert texts[0][-1] == "".join(texts[1]) == whole
    assert all(whole.startswith(text) for text in texts[0])
    outputs = llm.generate(["one two three"] * 3, params, use_tqdm=False)
    assert [output.outputs.text for output in outputs] == [whole] * 3


def test_other_values_are_refused() -> None:
    wrong: Any = 1
    with pytest.raises(TypeError, match="output_kind must be a RequestOutputKind, got 1"):
        SamplingParams(output_kind=wrong)
