"""What becomes of SamplingParams: defaults of the model, the engine's own, log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest
from model_folders import write_json

from headrace import LLM, CompletionOutput, RequestOutput, SamplingParams

Make = Callable[..., LLM]


def out(output: RequestOutput) -> CompletionOutput:
    assert output.outputs is not None
    return output.outputs


def generate(llm: LLM, prompts: Any, params: Any = None) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


class TestDefaults:
    """User value, else generation_config.json, else neutral."""

    @pytest.fixture
    def sent(self, monkeypatch: pytest.MonkeyPatch, fake_engine: Any) -> list[Any]:
        seen: list[Any] = []
        real = fake_engine.Engine.submit

        def submit(engine: Any, model: str, **how: Any) -> Any:
            seen.append(how["sampling"])
            return real(engine, model, **how)

        monkeypatch.setattr(fake_engine.Engine, "submit", submit)
        return seen

    def llm_with(self, make_llm: Make, folder: Path, config: Any) -> LLM:
        model_folders.byte_level_folder(folder)
        write_json(folder / "generation_config.json", config)
        return make_llm(folder)

    def test_neutral(self, llm: LLM, sent: list[Any]) -> None:
        generate(llm, "x", SamplingParams())
        (own,) = sent
        assert (own.temperature, own.top_p, own.top_k, own.min_p) == (1.0, 1.0, 0, 0.0)
        assert (own.repetition_penalty, own.frequency_penalty, own.presence_penalty) == (1, 0, 0)
        assert (own.min_tokens, own.logprobs, own.ignore_eos) == (1, None, False)

    def test_the_model_s(self, make_llm: Make, tmp_path: Path, sent: list[Any]) -> None:
        config = {"temperature": 0.6, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}
        llm = self.llm_with(make_llm, tmp_path, {**config, "do_sample": True})
        generate(llm, "x")
        generate(llm, "x", SamplingParams(temperature=0.1, top_k=0, top_p=1.0))
        first, second = sent
        assert all(getattr(first, name) == value for name, value in config.items())
        assert (second.temperature, second.top_k, second.top_p) == (0.1, 0, 1.0)
        assert second.repetition_penalty == 1.05

    def test_do_sample_false_is_greedy(
        self, make_llm: Make, tmp_path: Path, sent: list[Any]
    ) -> None:
        llm = self.llm_with(make_llm, tmp_path, {"do_sample": False, "temperature": 0.6})
        for params in (SamplingParams(), SamplingParams(repetition_penalty=1.1)):
            generate(llm, "x", params)
        for params in (SamplingParams(top_p=0.9), SamplingParams(temperature=1.0)):
            generate(llm, "x", params)
        assert [own.temperature for own in sent] == [0.0, 0.0, 0.6, 1.0]

    def test_max_new_tokens(self, make_llm: Make, tmp_path: Path, sent: list[Any]) -> None:
        llm = self.llm_with(make_llm, tmp_path, {"max_new_tokens": 5})
        for params in (SamplingParams(), None, SamplingParams(max_tokens=7)):
            generate(llm, "x", params)
        assert [own.max_tokens for own in sent] == [5, 5, 7]
        write_json(tmp_path / "generation_config.json", {"max_new_tokens": 0})
        with pytest.raises(ValueError, match="max_new_tokens must be an integer from 1 on"):
            make_llm(tmp_path)

    def test_bad_generation_config(self, make_llm: Make, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"generation_config.json: top_p must be in"):
            self.llm_with(make_llm, tmp_path, {"top_p": 3})

    def test_default_sampling_params(self, make_llm: Make) -> None:
        own = make_llm(max_model_len=77).default_sampling_params
        assert own == SamplingParams(max_tokens=77)

    def test_everything_arrives(self, llm: LLM, sent: list[Any], fake_engine: Any) -> None:
        params = SamplingParams(
            temperature=0.5,
            top_p=0.4,
            top_k=3,
            min_p=0.2,
            seed=11,
            repetition_penalty=1.2,
            frequency_penalty=0.3,
            presence_penalty=-0.4,
            max_tokens=9,
            min_tokens=2,
            ignore_eos=True,
            stop_token_ids=[7, [8, 9]],
            bad_words_token_ids=[44],
            logits_processors_args={"logit_bias": {"12": -1}},
        )
        generate(llm, "x", params)
        (own,) = sent
        names = ("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty")
        names += ("frequency_penalty", "presence_penalty", "max_tokens", "min_tokens", "ignore_eos")
        assert all(getattr(own, name) == getattr(params, name) for name in names)
        assert own.stop_token_ids == [7]
        assert own.stop_sequences == [[8, 9]]
        assert own.bad_words == [[44]]
        assert own.logit_bias == [(12, -1.0)]

    def test_bad_words_both_ways(self, llm: LLM, sent: list[Any]) -> None:
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        generate(
            llm, {"prompt": "x", "bad_words": ["dog"]}, SamplingParams(bad_words=[" fox", "zzz"])
        )
        words = ("fox", " fox", "zzz", " zzz", "dog", " dog")
        assert sent[0].bad_words == sorted(tokenizer.encode(word) for word in words)
        assert any(len(ids) > 1 for ids in sent[0].bad_words)


class TestLogprobs:
    def test_structure(self, make_llm: Make) -> None:
        llm = make_llm(enable_logprob=True)
        (output,) = generate(
            llm, [[1, 40]], SamplingParams(logprobs=2, ignore_eos=True, max_tokens=2)
        )
        first, second = out(output).logprobs or []
        assert {token: (p.logprob, p.rank) for token, p in first.items()} == {
            1: (-0.2, 2),
            0: (-0.1, 1),
        }
        assert {token: p.rank for token, p in second.items()} == {40: 41, 0: 1, 1: 2}
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        assert second[40].decoded_token == tokenizer.token_text(40)
        table = out(output).top_logprobs
        assert table is not None
        assert table.logprob_token_ids == [[1, 0, 1], [40, 0, 1]]
        assert table.logprobs == [[-0.2, -0.1, -0.2], [-4.1, -0.1, -0.2]]
        assert table.sampled_token_ranks == [2, 41]
        assert out(output).logprob == -4.1

    def test_none_unless_asked(self, make_llm: Make) -> None:
        (output,) = generate(make_llm(enable_logprob=True), "x")
        assert out(output).logprobs is None
        assert out(output).top_logprobs is None
        assert output.prompt_logprobs is None

    def test_only_the_chosen(self, make_llm: Make) -> None:
        llm = make_llm(enable_logprob=True)
        (output,) = generate(llm, [[40]], SamplingParams(logprobs=0, max_tokens=1))
        assert [list(entry) for entry in out(output).logprobs or []] == [[40]]

    def test_the_whole_vocabulary(self, make_llm: Make) -> None:
        llm = make_llm(enable_logprob=True, max_logprobs=-1)
        size = llm.model_info.vocab_size
        (output,) = generate(llm, [[40]], SamplingParams(logprobs=-1, max_tokens=1))
        assert len((out(output).logprobs or [])[0]) == size

    def test_prompt(self, make_llm: Make) -> None:
        llm = make_llm(enable_logprob=True)
        for output in generate(llm, [[1, 40, 0]], SamplingParams(prompt_logprobs=1, n=2)):
            first, second, third = output.prompt_logprobs or []
            assert first is None
            assert second is not None
            assert {token: p.rank for token, p in second.items()} == {40: 41, 0: 1}
            assert third is not None
            assert {token: p.rank for token, p in third.items()} == {0: 1}

    def test_cut_with_the_stop_string(self, make_llm: Make) -> None:
        llm = make_llm(enable_logprob=True)
        params = SamplingParams(logprobs=1, stop="three")
        (output,) = generate(llm, "one two three four", params)
        ids = out(output).token_ids
        assert [next(iter(entry)) for entry in out(output).logprobs or []] == ids

    @pytest.mark.parametrize(
        ("config", "params", "message"),
        [
            ({}, {"logprobs": 1}, "logprobs is only supported if `enable_logprob` is set to true"),
            ({}, {"prompt_logprobs": 1}, "prompt_logprobs is only supported if `enable_logprob`"),
            (
                {"enable_logprob": True},
                {"logprobs": 21},
                r"Number of logprobs requested \(21\) exceeds maximum allowed value \(20\)\.",
            ),
            (
                {"enable_logprob": True},
                {"logprobs": -1},
                r"Number of logprobs\(-1\) requested \(\d+\) exceeds maximum allowed value \(20\)",
            ),
            (
                {"enable_logprob": True},
                {"prompt_logprobs": -1},
                r"Number of prompt_logprobs\(-1\) requested \(\d+\) exceeds maximum allowed",
            ),
            (
                {"enable_logprob": True, "max_logprobs": 10**6},
                {"logprobs": 1},
                r"max_logprobs \(1000000\) exceeds vocabulary size \(\d+\)\.",
            ),
        ],
    )
    def test_gates(self, make_llm: Make, config: Any, params: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            generate(make_llm(**config), ["a", "b"], SamplingParams(**params))
