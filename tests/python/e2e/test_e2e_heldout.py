"""The shipped model answers at least nine of ten questions it has never seen."""

from __future__ import annotations

import sys

from conftest import ROOT

from headrace import LLM, SamplingParams, shipped_model

TINY = ROOT / "examples" / "tiny_model"


def test_held_out_questions() -> None:
    sys.path.insert(0, str(TINY))
    try:
        from dialogues import is_right, load_heldout  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(TINY))
    items = load_heldout(TINY / "heldout.jsonl")
    assert len(items) == 200
    with LLM(shipped_model()) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=128)
        outputs = llm.chat([item["messages"] for item in items], params, use_tqdm=False)
    wrong = []
    for item, output in zip(items, outputs, strict=True):
        assert output.outputs is not None
        if not is_right(output.outputs.text, item):
            wrong.append((item["messages"][-1]["content"], item["answers"], output.outputs.text))
    assert len(wrong) <= 20, "\n".join(map(str, wrong))
