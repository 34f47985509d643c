"""Quantized weights, end to end on the shipped model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import headrace
from headrace import LLM, SamplingParams, packed, shipped_model

TINY = ROOT / "examples" / "tiny_model"
PROMPTS = ["What is 17 + 25?", "Count from 3 to 9.", "Who are you?", "法国的首都是哪里？"]


def answers(prompts: list[str], **more: Any) -> list[tuple[list[int], str]]:
    params = SamplingParams(temperature=0.0, max_tokens=24, logprobs=2)
    with LLM(shipped_model(), enable_logprob=True, max_model_len=256, **more) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return [(out.outputs.token_ids, repr(out.outputs.logprobs)) for out in outputs]


@pytest.mark.parametrize("name", ["wint8", "wint4"])
def test_the_same_tokens_alone_and_together(name: str) -> None:
    want = answers(PROMPTS, quantization=name)
    for i, prompt in enumerate(PROMPTS):
        assert answers([prompt], quantization=name, num_threads=1) == want[i : i + 1]
    assert answers(PROMPTS, quantization=name, max_num_batched_tokens=7, max_num_seqs=3) == want


def test_takes_less_memory() -> None:
    sizes = []
    for name in (None, "wint8", "wint4"):
        with LLM(shipped_model(), quantization=name, max_model_len=64) as llm:
            sizes.append(llm.model_info.weight_bytes)
    assert sizes[1] < 0.6 * sizes[0]
    assert sizes[2] < 0.4 * sizes[0]


def test_packed_files(tmp_path: Path) -> None:
    file = tmp_path / "m.headrace"
    packed.pack(shipped_model(), file, quantization="wint4")
    want = answers(PROMPTS, quantization="wint4")
    assert answers(PROMPTS, packed_weights=file) == want
    assert answers(PROMPTS, packed_weights=file, quantization="wint4") == want
    for other in ("wint8", {"quantization": "wint4", "group_size": 64}):
        with pytest.raises(headrace.HeadraceError, match="wint4 weights in groups of 32"):
            LLM(shipped_model(), packed_weights=file, quantization=other)
    current = {"quantization": "wint4", "skip_if_current": True}
    assert packed.pack(shipped_model(), file, **current) is None
    assert packed.pack(shipped_model(), file, skip_if_current=True) is not None
