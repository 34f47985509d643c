"""Bad requests, streams, interruptions, threads and the end of an LLM."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import model_folders
import pytest

from headrace import LLM, EngineError, GuidedDecodingParams, RequestOutput, SamplingParams
from headrace.errors import TokenizerError
from headrace.llm.requests.collector import Collector
from headrace.llm.requests.registry import Registry
from headrace.text.tokenizer import Tokenizer

Make = Callable[..., LLM]
FOREVER = SamplingParams(ignore_eos=True, max_tokens=10**6)


def generate(llm: LLM, prompts: Any, params: Any = None) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False)


def forever(prompt: list[int], output: list[int], seed: int) -> int:
    return 40


@pytest.fixture
def endless(make_llm: Make, fake_engine: Any) -> LLM:
    """An LLM whose requests run until they are cancelled."""
    fake_engine.script = forever
    return make_llm(max_model_len=10**6)


class TestBadRequests:
    def test_text_that_takes_too_long(
        self, make_llm: Make, fake_engine: Any, tmp_path: Path
    ) -> None:
        folder = model_folders.byte_level_folder(tmp_path)
        model_folders.make_decoder_slow(folder)
        llm = make_llm(folder, enable_logprob=True)
        own = Tokenizer.from_pretrained(folder)
        slow, quick = (own.encode(letter)[0] for letter in "ex")
        fake_engine.script = lambda prompt, output, seed: (
            slow if prompt[0] == quick and len(output) == 2 else quick
        )
        params = SamplingParams(max_tokens=4, logprobs=0)
        plain, prompt, output = generate(llm, ["y", "e", "x"], params)
        assert (plain.error_code, plain.outputs.text) == (200, "xxxx")
        for failed in (prompt, output):
            assert failed.error_code == 400
            assert "takes too many steps" in (failed.error_msg or "")
            assert failed.outputs.finish_reason == "error"

    def test_cost_the_others_nothing(self, make_llm: Make) -> None:
        llm = make_llm(max_model_len=32)
        prompts = ["ok", "", [5] * 32, [5] * 33, [10**7], [-1], ["x"], {"prompt": 5.5}, "fine"]
        outputs = generate(llm, prompts)
        assert [output.error_code for output in outputs] == [200] + [400] * 7 + [200]
        messages = [output.error_msg or "" for output in outputs]
        assert "prompt_token_ids must be a non-empty sequence of token IDs" in messages[1]
        assert messages[2] == (
            "Input text is too long, length of prompt token(32) + min_dec_len (1) > "
            "max_model_len(32)"
        )
        assert messages[3] == "Length of input token(33) exceeds the limit max_model_len(32)."
        assert "is 10000000, which is outside the vocabulary of" in messages[4]
        assert "prompt_token_ids[0] is -1, which is" in messages[5]
        assert "must be a list of token ids" in messages[6]
        for output, prompt in zip(outputs, prompts, strict=True):
            assert output.finished
            assert output.prompt is prompt
            assert output.outputs is not None
        failed = outputs[1].outputs
        assert failed is not None
        assert (failed.text, failed.token_ids, failed.finish_reason) == ("", [], "error")

    def test_min_tokens_count(self, make_llm: Make) -> None:
        llm = make_llm(max_model_len=32)
        params = SamplingParams(min_tokens=10)
        good, bad = generate(llm, [[5] * 22, [5] * 23], params)
        assert (good.error_code, bad.error_code) == (200, 400)

    def test_every_output_of_a_bad_prompt_is_reported(self, llm: LLM) -> None:
        outputs = generate(llm, ["", "ok"], SamplingParams(n=2))
        assert [output.error_code for output in outputs] == [400, 400, 200, 200]
        indices = [output.outputs.index for output in outputs if output.outputs]
        assert indices == [0, 1, 0, 1]

    def test_raise_on_error(self, make_llm: Make) -> None:
        llm = make_llm(raise_on_error=True)
        with pytest.raises(EngineError, match="non-empty sequence") as caught:
            generate(llm, ["ok", "", "ok"])
        assert caught.value.error_code == 400
        assert llm.request_ids() == []
        assert generate(llm, "ok")[0].error_code == 200

    def test_a_failure_of_the_engine(self, make_llm: Make, fake_engine: Any) -> None:
        def script(prompt: list[int], output: list[int], seed: int) -> int:
            if len(output) == 2 and prompt[0] == 50:
                raise RuntimeError("the device is on fire")
            return 40 if len(output) < 4 else 2

        fake_engine.script = script
        good, bad = generate(make_llm(), [[49], [50]])
        assert (good.error_code, bad.error_code) == (200, 500)
        assert bad.error_msg == "the device is on fire"
        assert bad.outputs is not None
        assert bad.outputs.finish_reason == "error"
        assert bad.outputs.token_ids == [40, 40]  # what it had
        with pytest.raises(EngineError, match="on fire") as caught:
            generate(make_llm(raise_on_error=True), [[49], [50]])
        assert caught.value.error_code == 500

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"guided_decoding": GuidedDecodingParams(regex="(")}, "regular expression"),
            ({"logits_processors_args": {"thinking_budget": 3}}, "'thinking_budget'"),
        ],
    )
    def test_what_is_missing_is_named(self, llm: LLM, params: Any, message: str) -> None:
        own = SamplingParams(**params)
        with pytest.raises(ValueError, match=message):  # no prompt could be served with it
            generate(llm, ["a", "b"], own)
        good, bad = generate(llm, ["a", "b"], [SamplingParams(), own])
        assert (good.error_code, bad.error_code) == (200, 400)
        assert message in (bad.error_msg or "")

    def test_media_are_refused(self, llm: LLM) -> None:
        asked = {"prompt": "x", "multimodal_data": {"image": [object()]}}
        assert "reads text only" in (generate(llm, asked)[0].error_msg or "")

    def test_a_request_id_in_use(self, endless: LLM) -> None:
        twice = [{"prompt": "x", "request_id": "same"}, {"prompt": "y", "request_id": "same"}]
        stream = endless.generate(twice, FOREVER, use_tqdm=False, stream=True)
        first = next(iter(stream))
        assert first[1] is not None
        assert first[1].error_msg == "request_id 'same' is already in use"
        endless.abort("same")
        assert list(stream)[-1][0].finished  # type: ignore[union-attr]


class TestStream:
    def test_increments_make_the_whole(self, llm: LLM) -> None:
        prompts = ["one two three 你好🙂", "", "four five stop six", "x" * 50]
        params = SamplingParams(stop="stop", min_tokens=0)
        whole = generate(llm, prompts, params)
        joined: list[RequestOutput | None] = [None] * len(prompts)
        for step in llm.generate(prompts, params, use_tqdm=False, stream=True):
            assert len(step) == len(prompts)
            assert any(step)
            for place, increment in enumerate(step):
                if increment is None:
                    continue
                before = joined[place]
                if before is None:
                    joined[place] = increment
                else:
                    assert not before.finished
                    assert increment.outputs is not None
                    assert before.outputs is not None
                    assert increment.outputs.send_idx == len(before.outputs.token_ids)
                    before.accumulate(increment)
        for one, other in zip(joined, whole, strict=True):
            assert one is not None
            assert one.outputs is not None
            assert other.outputs is not None
            assert one.outputs.text == other.outputs.text
            assert one.outputs.token_ids == other.outputs.token_ids
            assert one.outputs.finish_reason == other.outputs.finish_reason
            assert (one.finished, one.error_msg) == (True, other.error_msg)

    def test_logprobs_come_along(self, make_llm: Make) -> None:
        llm = make_llm(enable_logprob=True)
        params = SamplingParams(logprobs=1, prompt_logprobs=0)
        (whole,) = generate(llm, "one two three", params)
        steps = list(llm.generate("one two three", params, use_tqdm=False, stream=True))
        first = steps[0][0]
        assert first is not None
        assert first.prompt_logprobs == whole.prompt_logprobs
        for (later,) in steps[1:]:
            assert later is not None
            assert later.prompt_logprobs is None
            first.add(later)
        assert first.outputs is not None
        assert whole.outputs is not None
        assert first.outputs.logprobs == whole.outputs.logprobs
        assert first.outputs.top_logprobs == whole.outputs.top_logprobs

    def test_errors_of_the_call_come_at_once(self, llm: LLM) -> None:
        with pytest.raises(TypeError):
            llm.generate(5, stream=True)

    def test_a_progress_bar_if_asked(self, llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
        list(llm.generate(["one two"] * 2, stream=True))
        assert capsys.readouterr().err == ""  # it would overwrite what the caller prints
        list(llm.generate(["one two"] * 2, use_tqdm=True, stream=True))
        assert "100%" in capsys.readouterr().err

    @pytest.mark.parametrize("how", ["close", "drop", "with", "unread"])
    def test_leaving_it_cancels(self, endless: LLM, how: str) -> None:
        stream = endless.generate(["a", "b"], FOREVER, use_tqdm=False, stream=True)
        if how != "unread":
            next(iter(stream))
        assert len(endless.request_ids()) == 2
        if how == "close":
            stream.close()  # type: ignore[union-attr]
            assert list(stream) == []
        elif how == "with":
            with stream:  # type: ignore[union-attr]
                pass
        del stream
        gc.collect()
        assert endless.request_ids() == []

    def test_raise_on_error(self, make_llm: Make) -> None:
        llm = make_llm(raise_on_error=True)
        with pytest.raises(EngineError):
            llm.generate(["ok", ""], use_tqdm=False, stream=True)
        assert llm.request_ids() == []

    def test_chat(self, llm: LLM) -> None:
        messages = [{"role": "user", "content": "hi"}]
        steps = list(llm.chat(messages, use_tqdm=False, stream=True))
        texts = [step[0].outputs.text for step in steps if step[0] and step[0].outputs]
        assert "".join(text or "" for text in texts) == "User: hi\nAssistant: "


class TestAbort:
    @pytest.mark.parametrize("which", ["one", "list", "all"])
    def test_from_another_thread(self, endless: LLM, which: str) -> None:
        results: list[RequestOutput] = []
        prompts = [{"prompt": "x", "request_id": f"r{i}"} for i in range(3)]
        worker = threading.Thread(
            target=lambda: results.extend(generate(endless, prompts, FOREVER))
        )
        worker.start()
        while len(endless.request_ids()) < 3:
            time.sleep(0.001)
        if which == "all":
            endless.abort()
        elif which == "list":
            endless.abort(["r0", "r1", "r2", "unknown"])
        else:
            endless.abort("r1")
            while endless.request_ids() != ["r0", "r2"]:
                time.sleep(0.001)
            endless.abort(["r0", "r2"])
        worker.join()
        assert [output.error_msg for output in results] == ["Aborted"] * 3
        assert [output.error_code for output in results] == [200] * 3
        for output in results:
            assert output.outputs is not None
            assert output.outputs.finish_reason == "abort"
            assert output.outputs.text == "E" * len(output.outputs.token_ids)

    def test_nothing_to_abort(self, llm: LLM) -> None:
        llm.abort()
        llm.abort("nobody")
        assert llm.request_ids() == []

    def test_ctrl_c_cancels_the_call_alone(self, endless: LLM) -> None:
        other = endless.generate("b", FOREVER, use_tqdm=False, stream=True)
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            generate(endless, ["a"] * 3, FOREVER)
        timer.join()
        assert len(endless.request_ids()) == 1
        assert next(iter(other))[0] is not None
        endless.abort()
        generate(endless, "c", SamplingParams(max_tokens=2))


class TestThreads:
    def test_many_calls_at_once(self, llm: LLM) -> None:
        failures: list[str] = []

        def work(number: int) -> None:
            prompts = [f"thread {number} prompt {i}" for i in range(10)]
            for _ in range(3):
                outputs = generate(llm, prompts)
                texts = [output.outputs.text for output in outputs if output.outputs]
                if texts != prompts:
                    failures.append(f"{number}: {texts}")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert llm.request_ids() == []


def test_a_call_may_be_cancelled_while_another_thread_collects() -> None:
    class Registered(Registry):
        def withdraw(self, request_ids: Iterable[str]) -> None:
            for name in request_ids:
                collector._names.discard(name)  # as `collect` does with one that has ended

    collector = Collector(
        Registered(lambda: None), [1, 1], raise_on_error=False, until_released=False
    )
    for name in ("a", "b"):
        collector.reserve(name)
    collector.cancel()
    assert not collector.names


class TestClose:
    def test_twice_and_afterwards(self, llm: LLM) -> None:
        llm.close()
        llm.close()
        with pytest.raises(RuntimeError, match="has been closed"):
            generate(llm, "x")

    def test_with_block(self, make_llm: Make) -> None:
        with make_llm() as llm:
            assert generate(llm, "x")[0].finished
        with pytest.raises(RuntimeError, match="has been closed"):
            generate(llm, "x")

    def test_while_a_call_runs(self, endless: LLM) -> None:
        results: list[RequestOutput] = []
        worker = threading.Thread(target=lambda: results.extend(generate(endless, "a", FOREVER)))
        worker.start()
        while not endless.request_ids():
            time.sleep(0.001)
        endless.close()
        worker.join()
        assert results[0].error_msg == "Aborted"

    def test_dropping_the_last_reference(self, make_llm: Make, toy_folder: Path) -> None:
        llm = LLM(str(toy_folder))
        thread_count = threading.active_count()
        del llm
        gc.collect()
        assert threading.active_count() == thread_count - 1

    def test_nothing_is_left_after_a_failed_start(self, make_llm: Make, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match=r"has no config.json"):
            make_llm(tmp_path)

    def test_a_broken_tokenizer_leaves_no_engine(
        self, make_llm: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_engine: Any
    ) -> None:
        closed = []
        real = fake_engine.Engine.close
        monkeypatch.setattr(
            fake_engine.Engine, "close", lambda engine: (closed.append(1), real(engine))
        )
        model_folders.byte_level_folder(tmp_path)
        (tmp_path / "tokenizer.json").write_text("{")
        with pytest.raises(TokenizerError, match=r"tokenizer\.json: not valid JSON"):
            make_llm(tmp_path)
        assert closed == [1]

    def test_quiet_at_exit(self, toy_folder: Path) -> None:
        code = f"""
import sys
sys.path[:] = {sys.path!r}
import fake_core
fake_core.install()
from headrace import LLM, SamplingParams
fake_core.script = lambda prompt, output, seed: 40
llm = LLM({str(toy_folder)!r}, max_model_len=100000)
stream = llm.generate("x", SamplingParams(max_tokens=90000), use_tqdm=False, stream=True)
print(next(stream)[0].outputs.text)
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("E")
