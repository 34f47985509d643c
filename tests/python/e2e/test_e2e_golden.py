"""Every golden case through LLM: the tokens and log-probabilities of transformers, in float32."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from conftest import ROOT

from headrace import LLM, RequestOutput, SamplingParams

GOLDEN = ROOT / "tests" / "golden"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/golden.json"))
GREEDY = SamplingParams(
    temperature=0.0, ignore_eos=True, max_tokens=64, logprobs=0, prompt_logprobs=0
)


def load(name: str) -> Any:
    pytest.importorskip("numpy")
    sys.path.insert(0, str(GOLDEN))
    try:
        from load import load_case  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    return load_case(name)


def chosen(output: RequestOutput) -> tuple[list[int], list[float]]:
    """The generated ids and their log-probabilities."""
    assert output.outputs is not None
    assert output.error_msg is None
    entries = output.outputs.logprobs or []
    ids = output.outputs.token_ids
    return ids, [entry[token].logprob for entry, token in zip(entries, ids, strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    golden = load(name)
    prompts = [prompt.prompt for prompt in golden.prompts]
    # Some cases go on beyond max_position_embeddings, which only warns.
    length = max(map(len, prompts)) + 64
    options = {"dtype": "float32", "enable_logprob": True, "max_model_len": length}
    if name.endswith("_wrapped"):  # perhaps with a tower, but without a processor's file
        options["deploy_modality"] = "text"
    with LLM(str(golden.folder), **options) as llm:
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    for output, expected in zip(outputs, golden.prompts, strict=True):
        ids, logprobs = chosen(output)
        assert ids == expected.tokens
        pairs = zip(logprobs, expected.token_logprobs, strict=True)
        assert max(abs(own - one) for own, one in pairs) <= golden.logprob_tolerance
        first, *rest = output.prompt_logprobs or [None]
        assert first is None
        tokens = output.prompt_token_ids[1:]
        own = [(entry or {})[token].logprob for entry, token in zip(rest, tokens, strict=True)]
        pairs = zip(own, expected.prompt_logprobs, strict=True)
        assert max((abs(a - b) for a, b in pairs), default=0.0) <= golden.logprob_tolerance


@pytest.mark.parametrize("name", ["ernie4_5", "gemma3_text", "llama", "qwen3_window"])
def test_neither_company_nor_chunks_matter(name: str) -> None:
    folder = GOLDEN / name
    prompts = [p["prompt"] for p in json.loads((folder / "golden.json").read_text())["prompts"]]
    answers = []
    few = {"gemma3_text": 64, "qwen3_window": 32}.get(name, 16)  # several groups of layers
    for options in (
        {"max_num_seqs": 1, "num_threads": 1},
        {"max_num_seqs": 64, "num_threads": 2},
        {"max_num_seqs": 3, "max_num_batched_tokens": 7, "block_size": 16},
        {"max_num_seqs": 4, "block_size": 16, "max_model_len": 256, "num_gpu_blocks_override": few},
        {"enable_prefix_caching": False, "block_size": 32},
    ):
        with LLM(str(folder), enable_logprob=True, **options) as llm:
            outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
            answers.append([chosen(output) for output in outputs])
    assert all(answer == answers[0] for answer in answers[1:])
