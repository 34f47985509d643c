"""speculative_config: what it may say, and that it changes no output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from headrace import LLM, HeadraceError, SamplingParams, shipped_model
from headrace.errors import UnsupportedError
from headrace.options.engine_args import EngineArgs
from headrace.options.speculative import engine_speculative


def test_fastdeploys_shape() -> None:
    assert engine_speculative(None) == {}
    assert engine_speculative({"method": "ngram"}) == {"method": "ngram"}
    whole = {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "min_ngram_size": 1,
        "max_ngram_size": 4,
    }
    more = {"verify_strategy": "target_match", "accept_policy": "normal", "model": None}
    draft = {"method": "draft_model", "model": "folder"}
    assert engine_speculative({**draft, "model": Path("folder")}) == draft
    assert engine_speculative({**whole, **more}) == whole
    mtp = {"method": "mtp", "num_speculative_tokens": 2}
    assert engine_speculative({**mtp, "num_model_steps": 2, "mtp_strategy": "default"}) == mtp
    assert engine_speculative({**mtp, "model": Path("f")}) == {**mtp, "model": "f"}
    assert engine_speculative('{"method": "ngram"}') == {"method": "ngram"}


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"method": "eagle"}, UnsupportedError, "'eagle'.*'ngram'.*'mtp'"),
        ({"method": "mtp", "model": 3}, TypeError, "folder of the MTP block's tensors.*3"),
        ({"method": "mtp", "num_model_steps": 2}, UnsupportedError, "num_model_steps=2"),
        ({"method": "mtp", "mtp_strategy": "with_ngram"}, UnsupportedError, "with_ngram"),
        ({}, UnsupportedError, "method None"),
        ({"method": "ngram", "verify_strategy": "topp"}, UnsupportedError, "verify_strategy"),
        ({"method": "ngram", "accept_policy": "accept_all"}, UnsupportedError, "accept_all"),
        ({"method": "ngram", "num_tokens": 3}, ValueError, "num_speculative_tokens"),
        ({"method": "ngram", "num_speculative_tokens": 0}, ValueError, r"\[1, 32\], got 0"),
        ({"method": "ngram", "num_speculative_tokens": "3"}, TypeError, "int"),
        ({"method": "ngram", "min_ngram_size": 6}, ValueError, r"\[1, 5\].*got 6"),
        ({"method": "ngram", "max_ngram_size": 65}, ValueError, r"\[1, 64\], got 65"),
        ({"method": "ngram", "model": "m"}, ValueError, "'ngram' has no model.*'m'"),
        ({"method": "draft_model"}, TypeError, "needs model"),
        ({"method": "mtp", "model": "a\0b"}, ValueError, "model has a NUL character"),
        ({"method": "mtp", "num_speculative_tokens": 10**400}, ValueError, "an int of"),
        ("[" * 100_000, ValueError, "JSON"),
        ("ngram", ValueError, "JSON"),
        (["ngram"], TypeError, "dict"),
    ],
)
def test_the_rest_is_refused(config: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        EngineArgs(speculative_config=config)


def test_it_reaches_the_engine(
    make_llm: Callable[..., LLM], fake_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    original = fake_engine.Engine.install_model

    def install(engine: Any, name: str, options: Any, **rest: Any) -> None:
        seen.append(options.speculative)
        original(engine, name, options, **rest)

    monkeypatch.setattr(fake_engine.Engine, "install_model", install)
    make_llm(speculative_config={"method": "ngram", "max_ngram_size": 7})
    make_llm()
    assert [(s.method, s.max_ngram_size) for s in seen] == [("ngram", 7), ("", 5)]


TEXT = "The quick brown fox jumps over the lazy dog. " * 4
PROMPTS = [TEXT, "Once upon a time", "1 2 3 1 2 3 1 2 3", "A list: apples, pears, apples,"]


def _answers(llm: LLM) -> list[tuple[list[int], Any]]:
    out = []
    for sampling in (
        SamplingParams(temperature=0, max_tokens=60, ignore_eos=True, logprobs=2),
        SamplingParams(temperature=0.7, top_p=0.9, seed=3, max_tokens=60, repetition_penalty=1.1),
        SamplingParams(temperature=0, max_tokens=60, frequency_penalty=0.3, min_tokens=20),
    ):
        for answer in llm.generate(PROMPTS, sampling, use_tqdm=False):
            output = answer.outputs
            out.append((list(output.token_ids), output.logprobs))
    return out


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"dtype": "bfloat16"},
        {"quantization": "wint8"},
        {"quantization": "wint4"},
        {"dtype": "bfloat16", "max_num_seqs": 1},
        {"block_size": 16, "num_gpu_blocks_override": 24, "max_model_len": 256},
    ],
)
def test_outputs_are_bit_for_bit_the_same(options: dict[str, Any]) -> None:
    options = {"max_model_len": 512, "enable_logprob": True, **options}
    with LLM(shipped_model(), **options) as llm:
        want = _answers(llm)
        assert llm.stats().drafted_tokens == 0
    guessing = {"method": "ngram", "min_ngram_size": 1}
    with LLM(shipped_model(), speculative_config=guessing, **options) as llm:
        assert _answers(llm) == want
        stats = llm.stats()
    assert 0 < stats.accepted_tokens <= stats.drafted_tokens


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"dtype": "float32"}])
def test_a_draft_model_that_is_the_model_is_always_right(options: dict[str, Any]) -> None:
    options = {"max_model_len": 512, "max_num_seqs": 1, "enable_logprob": True, **options}
    guessing = {"method": "draft_model", "model": shipped_model()}
    greedy = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    with LLM(shipped_model(), speculative_config=guessing, **options) as llm:
        llm.generate(PROMPTS, greedy, use_tqdm=False)
        stats = llm.stats()
        assert stats.accepted_tokens == stats.drafted_tokens
        got = _answers(llm)
    with LLM(shipped_model(), **options) as llm:
        assert _answers(llm) == got


@pytest.mark.parametrize("name", ["ernie4_5_moe", "ernie4_5_moe_paddle"])
def test_a_models_own_block_changes_no_output(name: str) -> None:
    folder = ROOT / "tests" / "golden" / name
    prompts = [[7, 8, 9] * 12, [5], list(range(10, 60))]
    sampling = [
        SamplingParams(temperature=0, max_tokens=60, ignore_eos=True, logprobs=2),
        SamplingParams(temperature=0.8, seed=4, max_tokens=60, ignore_eos=True),
    ]
    options: dict[str, Any] = {"max_model_len": 256, "enable_logprob": True, "max_num_seqs": 4}

    def answers(llm: LLM) -> list[tuple[list[int], Any]]:
        results = [r for s in sampling for r in llm.generate(prompts, s, use_tqdm=False)]
        return [(list(r.outputs.token_ids), r.outputs.logprobs) for r in results]

    with LLM(str(folder), **options) as llm:
        want = answers(llm)
    guessing = {"method": "mtp", "num_speculative_tokens": 2}
    with LLM(str(folder), speculative_config=guessing, **options) as llm:
        assert answers(llm) == want
        assert llm.stats().drafted_tokens > 0


def test_a_model_without_such_a_block_is_refused() -> None:
    with pytest.raises(HeadraceError, match=r"MTP block.*use ngram or draft_model"):
        LLM(shipped_model(), speculative_config={"method": "mtp"}, max_model_len=64)


def test_a_draft_model_needs_the_same_vocabulary(tmp_path: Path) -> None:
    config = json.loads((Path(shipped_model()) / "config.json").read_text())
    config["vocab_size"] += 64
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="vocabulary"):
        LLM(
            shipped_model(),
            speculative_config={"method": "draft_model", "model": tmp_path},
            max_model_len=64,
        )
