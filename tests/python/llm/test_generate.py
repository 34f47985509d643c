"""LLM.generate over the fake engine: prompts, order, endings, several outputs, results."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest

from headrace import LLM, CompletionOutput, RequestOutput, SamplingParams
from headrace.errors import UnsupportedError
from headrace.options.sampling_params import BeamSearchParams

Make = Callable[..., LLM]


def texts(outputs: list[RequestOutput]) -> list[str]:
    return [out(output).text or "" for output in outputs]


def out(output: RequestOutput) -> CompletionOutput:
    assert output.outputs is not None
    return output.outputs


def generate(llm: LLM, prompts: Any, params: Any = None) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


def says(fake: Any, llm: LLM, text: str, end: bool = True) -> None:
    """The model generates this text whatever the prompt."""
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    ids = tokenizer.encode(text) + ([2] if end else [])
    fake.script = lambda prompt, output, seed: ids[min(len(output), len(ids) - 1)]


class TestPrompts:
    def test_every_form(self, llm: LLM) -> None:
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        ids = tokenizer.encode("hello")
        for prompts in (
            "hello",
            ["hello"],
            ("hello",),
            ids,
            [ids],
            [tuple(ids)],
            {"prompt": "hello"},
            [{"prompt": "hello"}],
            {"prompt": "", "prompt_token_ids": ids},
            {"prompt_token_ids": ids},
            {"prompt": ids},
            {"prompt": "hel", "completion_token_ids": tokenizer.encode("lo")},
            [{"prompt": "hello", "multimodal_data": {"image": []}}],
        ):
            (output,) = generate(llm, prompts)
            assert out(output).text == "hello", prompts
            assert tokenizer.decode(output.prompt_token_ids) == "hello"

    def test_arrays_are_read_by_tolist(self, llm: LLM) -> None:
        class Array:
            def __init__(self, values: list[Any]) -> None:
                self.values = values

            def tolist(self) -> list[Any]:
                return self.values

        assert len(generate(llm, Array([5, 6, 7]))) == 1
        assert len(generate(llm, [Array([5, 6]), Array([7])])) == 2

    def test_prompt_is_the_original_object(self, llm: LLM) -> None:
        prompts = ["hello", [40, 41], {"prompt": "x"}]
        for given, output in zip(prompts, generate(llm, prompts), strict=True):
            assert output.prompt is given

    def test_callers_objects_stay_unchanged(self, llm: LLM) -> None:
        prompts = [{"prompt": "hello", "bad_words": ["x"]}, {"prompt_token_ids": [40, 41]}]
        params = [SamplingParams(max_tokens=10**6, stop=["q"]), SamplingParams(temperature=1e-9)]
        before = copy.deepcopy((prompts, params))
        generate(llm, prompts, params)
        assert (prompts, params) == before

    def test_order(self, llm: LLM) -> None:
        prompts = ["word " * (20 - i) + str(i) for i in range(20)]
        assert texts(generate(llm, prompts)) == prompts

    def test_empty_batch(self, llm: LLM) -> None:
        assert generate(llm, []) == []

    def test_special_tokens_only_when_asked(self, llm: LLM) -> None:
        plain, special = generate(
            llm, [{"prompt": "hi"}, {"prompt": "hi", "add_special_tokens": True}]
        )
        assert special.prompt_token_ids == [1, *plain.prompt_token_ids]

    def test_messages_in_a_dict(self, llm: LLM) -> None:
        messages = [{"role": "user", "content": "hi"}]
        asked = {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        (output,) = generate(llm, asked)
        assert tokenizer.decode(output.prompt_token_ids) == "<s>User: hi\n[plain]Assistant: "

    def test_request_id(self, llm: LLM) -> None:
        (output,) = generate(llm, {"prompt": "x", "request_id": "mine"})
        assert output.request_id == "mine"
        several = generate(llm, {"prompt": "x", "request_id": "mine"}, SamplingParams(n=2))
        assert [one.request_id for one in several] == ["mine_0", "mine_1"]

    def test_unknown_keys_warn(self, llm: LLM) -> None:
        with pytest.warns(UserWarning, match="unknown keys colour have no effect"):
            generate(llm, {"prompt": "x", "colour": "red"})

    @pytest.mark.parametrize(
        ("prompts", "kind", "message"),
        [
            (None, ValueError, "prompts and prompt_ids cannot be both None."),
            (5, TypeError, "Invalid type for 'prompt': <class 'int'>, expected one of"),
            (["a", 5.5], TypeError, "Invalid type for 'prompt': <class 'float'>"),
            ({"text": "a"}, ValueError, "prompts must be a input dict"),
            ({}, ValueError, "prompts must be a input dict"),
        ],
    )
    def test_wrong_form_of_the_call(
        self, llm: LLM, prompts: Any, kind: type[Exception], message: str
    ) -> None:
        with pytest.raises(kind, match=message):
            generate(llm, prompts)

    @pytest.mark.parametrize("count", [2, 4])
    def test_as_many_params_as_prompts(self, llm: LLM, count: int) -> None:
        with pytest.raises(ValueError, match="prompts and sampling_params must be the same length"):
            generate(llm, ["a"] * 3, [SamplingParams()] * count)

    def test_params_of_a_wrong_type(self, llm: LLM) -> None:
        with pytest.raises(TypeError, match="sampling_params must be a SamplingParams"):
            generate(llm, "a", {"temperature": 1})

    def test_one_in_a_list_serves_all(self, llm: LLM) -> None:
        outputs = generate(llm, ["one two", "three four"], [SamplingParams(max_tokens=1)])
        assert [len(out(output).token_ids) for output in outputs] == [1, 1]


class TestEndings:
    def test_end_of_sequence(self, llm: LLM) -> None:
        (output,) = generate(llm, "hello")
        assert output.finished
        assert out(output).token_ids[-1] == 2
        assert (out(output).text, out(output).finish_reason) == ("hello", "stop")
        assert out(output).stop_reason is None

    def test_length(self, llm: LLM) -> None:
        (output,) = generate(llm, "one two three", SamplingParams(max_tokens=2))
        assert len(out(output).token_ids) == 2
        assert out(output).finish_reason == "length"

    def test_length_is_what_the_context_leaves(self, make_llm: Make, fake_engine: Any) -> None:
        llm = make_llm(max_model_len=32)
        fake_engine.script = lambda prompt, output, seed: 40
        for params in (None, SamplingParams(max_tokens=10**6)):
            (output,) = generate(llm, [[40] * 20], params)
            assert len(out(output).token_ids) == 12
            assert out(output).finish_reason == "length"

    def test_long_prompts_are_cut_where_asked(self, make_llm: Make) -> None:
        llm = make_llm(max_model_len=32)
        prompt = list(range(40, 80))
        for most, params in (
            (3, SamplingParams(truncate_prompt_tokens=3)),
            (31, SamplingParams(truncate_prompt_tokens=-1)),
            (28, SamplingParams(truncate_prompt_tokens=-1, max_tokens=4)),
        ):
            (output,) = generate(llm, [prompt], params)
            assert output.prompt_token_ids == prompt[-most:], output.error_msg
        (output,) = generate(llm, [prompt], SamplingParams(truncate_prompt_tokens=33))
        assert "truncate_prompt_tokens (33) exceeds max_model_len (32)" in (output.error_msg or "")
        (output,) = generate(llm, [prompt[:2]], SamplingParams(truncate_prompt_tokens=3))
        assert output.prompt_token_ids == prompt[:2]

    def test_ignore_eos(self, llm: LLM, fake_engine: Any) -> None:
        fake_engine.script = lambda prompt, output, seed: 2
        params = SamplingParams(ignore_eos=True, max_tokens=3, skip_special_tokens=False)
        (output,) = generate(llm, "x", params)
        assert out(output).token_ids == [2, 2, 2]
        assert out(output).text == "</s></s></s>"

    def test_stop_string(self, llm: LLM) -> None:
        (output,) = generate(llm, "one two three four", SamplingParams(stop=["three", "nine"]))
        assert out(output).text == "one two "
        assert (out(output).finish_reason, out(output).stop_reason) == ("stop", "three")
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        assert tokenizer.decode(out(output).token_ids) == "one two"

    def test_stop_string_kept(self, llm: LLM) -> None:
        params = SamplingParams(stop="three", include_stop_str_in_output=True)
        (output,) = generate(llm, "one two three four", params)
        assert out(output).text == "one two three"

    def test_stop_string_ends_the_request_in_the_engine(self, llm: LLM, fake_engine: Any) -> None:
        says(fake_engine, llm, "go on stop here and " + "more " * 300)
        generate(llm, "x", SamplingParams(stop="stop", max_tokens=400))
        assert llm.stats().generated_tokens < 300
        assert llm.request_ids() == []

    @pytest.mark.parametrize("form", [[40], [[40]]])
    def test_stop_token(self, llm: LLM, fake_engine: Any, form: Any) -> None:
        fake_engine.script = lambda prompt, output, seed: 38 + len(output)
        (output,) = generate(llm, "x", SamplingParams(stop_token_ids=form))
        assert out(output).token_ids == [38, 39, 40]
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        assert out(output).text == tokenizer.decode([38, 39])
        assert (out(output).finish_reason, out(output).stop_reason) == ("stop", 40)
        params = SamplingParams(stop_token_ids=form, include_stop_str_in_output=True)
        assert out(generate(llm, "x", params)[0]).text == tokenizer.decode([38, 39, 40])

    def test_stop_token_sequence(self, llm: LLM, fake_engine: Any) -> None:
        fake_engine.script = lambda prompt, output, seed: 38 + len(output)
        (output,) = generate(llm, "x", SamplingParams(stop_token_ids=[[39, 40], [50, 51]]))
        assert out(output).token_ids == [38, 39, 40]
        assert out(output).stop_reason == [39, 40]

    def test_min_tokens_hold_everything_back(self, llm: LLM) -> None:
        params = SamplingParams(min_tokens=4, stop=["two"], max_tokens=30)
        (output,) = generate(llm, "one two three two one", params)
        assert out(output).text == "one two three "

    def test_no_end_before_min_tokens(self, llm: LLM, fake_engine: Any) -> None:
        fake_engine.script = lambda prompt, output, seed: 2
        (output,) = generate(llm, "x", SamplingParams(min_tokens=3))
        assert len(out(output).token_ids) == 4
        assert out(output).token_ids.count(2) == 1

    def test_tokenizer_may_name_another_end(self, make_llm: Make, tmp_path: Path) -> None:
        folder = model_folders.byte_level_folder(tmp_path)
        model_folders.write_config(folder, 512, eos_token_id=3)
        llm = make_llm(folder)
        (output,) = generate(llm, [[40, 2, 41]])
        assert out(output).token_ids == [40, 2]
        assert (out(output).finish_reason, out(output).stop_reason) == ("stop", None)
        (output,) = generate(llm, [[40, 2, 41]], SamplingParams(ignore_eos=True, max_tokens=3))
        assert out(output).token_ids == [40, 2, 41]

    def test_special_tokens_in_text(self, llm: LLM) -> None:
        params = [SamplingParams(), SamplingParams(skip_special_tokens=False)]
        assert texts(generate(llm, ["a<pad>b"] * 2, params)) == ["ab", "a<pad>b"]

    def test_multi_byte_text(self, llm: LLM) -> None:
        text = "你好 👩\u200d👩\u200d👧 naïve €"
        assert texts(generate(llm, text)) == [text]


class TestSeveralOutputs:
    def test_in_a_row(self, llm: LLM, fake_engine: Any) -> None:
        fake_engine.script = lambda prompt, output, seed: seed % 400 if not output else 2
        outputs = generate(llm, ["a", "b"], [SamplingParams(n=3, seed=50), SamplingParams(n=2)])
        assert [output.prompt for output in outputs] == ["a"] * 3 + ["b"] * 2
        assert [out(output).index for output in outputs] == [0, 1, 2, 0, 1]
        assert [out(output).token_ids[0] for output in outputs[:3]] == [50, 51, 52]
        assert len({output.request_id for output in outputs}) == 5

    def test_fresh_seeds(self, llm: LLM, fake_engine: Any) -> None:
        seeds = []

        def script(prompt: list[int], output: list[int], seed: int) -> int:
            seeds.append(seed)
            return 2

        fake_engine.script = script
        generate(llm, ["a"] * 8)
        assert len(set(seeds)) == 8
        seeds.clear()
        params = SamplingParams(n=2)
        outputs = generate(llm, ["a"] * 3, params)
        assert params.seed is None
        told = [out(output).seed for output in outputs]
        assert set(seeds) == set(told)
        assert told[1::2] == [seed + 1 for seed in told[::2]]
        assert len(set(told)) == 6
        seeds.clear()
        generate(llm, ["b"], SamplingParams(seed=told[0]))  # repeats a draw
        assert set(seeds) == set(told[:1])
        for updates in llm.generate("a", stream=True):
            assert all(out(update).seed == seeds[-1] for update in updates if update)
        seeds.clear()
        llm.default_sampling_params = SamplingParams(seed=6)
        generate(llm, ["a"] * 2)
        assert set(seeds) == {6}

    def test_beam_search_is_refused_by_name(self, llm: LLM) -> None:
        params: Any = BeamSearchParams(beam_width=4, max_tokens=8)
        with pytest.raises(UnsupportedError, match="BeamSearchParams"):
            llm.generate("a", params)

    def test_seed_of_the_llm(self, make_llm: Make, fake_engine: Any) -> None:
        seeds: list[list[int]] = [[], []]

        def run(seen: list[int]) -> None:
            def script(prompt: list[int], output: list[int], seed: int) -> int:
                seen.append(seed)
                return 2

            fake_engine.script = script
            llm = make_llm(seed=7)
            for prompt in ("a", "b", "c"):
                generate(llm, prompt)

        for seen in seeds:
            run(seen)
        assert seeds[0] == seeds[1]
        assert len(set(seeds[0])) == 3


class TestResults:
    def test_metrics(self, llm: LLM, fake_engine: Any) -> None:
        fake_engine.prefix_hits, fake_engine.host_hits = 64, 16
        (output,) = generate(llm, "one two three")
        own = output.metrics
        assert own is not None
        assert output.num_cached_tokens == 64
        assert (own.gpu_cache_token_num, own.cpu_cache_token_num) == (48, 16)
        assert output.prompt_token_ids_len == own.prompt_token_ids_len
        assert own.arrival_time == own.request_start_time
        times = [
            own.arrival_time,
            own.preprocess_start_time,
            own.preprocess_end_time,
            own.engine_get_req_time,
            own.inference_start_time,
            own.engine_recv_first_token_time,
            own.engine_recv_latest_token_time,
        ]
        assert None not in times
        assert times == sorted(times)  # type: ignore[type-var]
        start = own.inference_start_time or 0.0
        last = own.engine_recv_latest_token_time or 0.0
        assert own.first_token_time == (own.engine_recv_first_token_time or 0.0) - start
        assert own.time_in_queue == start - (own.preprocess_end_time or 0.0)
        assert own.model_forward_time == last - start
        assert own.model_execute_time == last - (own.arrival_time or 0.0)

    def test_fields(self, llm: LLM) -> None:
        (output,) = generate(llm, "one two")
        assert (output.error_code, output.error_msg, output.finished) == (200, None, True)
        assert out(output).completion_tokens == out(output).text
        assert (out(output).send_idx, out(output).reasoning_content) == (0, None)

    def test_progress_bar(self, llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
        llm.generate(["one two three"] * 3)
        shown = capsys.readouterr().err
        assert "Prompts: 100%" in shown
        speeds = re.findall(r"in ([\d.]+)k?, out ([\d.]+)k? tok/s", shown)
        assert min(map(float, speeds[-1])) > 0
        assert max(map(len, re.split("[\r\n]", shown))) < 80
        generate(llm, ["x"])
        assert capsys.readouterr() == ("", "")

    def test_warnings_point_at_the_caller(self, make_llm: Make, toy_folder: Path) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            LLM(str(toy_folder), kv_cache_ratio=0.5).close()
        assert [one.filename for one in caught] == [__file__]

    def test_without_a_tokenizer(self, make_llm: Make, tmp_path: Path) -> None:
        model_folders.write_config(tmp_path, 64)
        llm = make_llm(tmp_path)
        ids, text, stop = llm.generate(
            [[5, 6], "hello", [5]],
            [SamplingParams(), SamplingParams(), SamplingParams(stop="x")],
            use_tqdm=False,
        )
        assert (out(ids).token_ids, out(ids).text) == ([5, 6, 2], "")
        assert text.error_msg == (
            "the model folder has no tokenizer: name one by tokenizer, or pass token ids, not text"
        )
        assert "stop strings need a tokenizer" in (stop.error_msg or "")


def test_arrays_in_dicts(llm: LLM) -> None:
    numpy = pytest.importorskip("numpy")
    ids = numpy.array([5, 6, 7])
    (expected,) = generate(llm, [5, 6, 7])
    for prompts in (
        {"prompt_token_ids": ids},
        [{"prompt": "", "prompt_token_ids": ids}],
        {"prompt_token_ids": ids[:2], "completion_token_ids": ids[2:]},
        {"prompt": ids},
        ids,
        ids.reshape(1, 3),
    ):
        (output,) = generate(llm, prompts)
        assert output.prompt_token_ids == expected.prompt_token_ids
