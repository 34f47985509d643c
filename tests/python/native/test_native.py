"""The native API from threads: text, results, statistics, states of a model."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from native_model import ENDLESS, greedy, options

import headrace
from headrace import (
    Engine,
    FinishReason,
    GenerationConfig,
    HeadraceError,
    RequestStatus,
    ResultQueue,
    Selector,
    _core,
    native,
)

PROMPT = [5, 6, 7]


def read_all(queue: ResultQueue) -> list[int]:
    return [token_id for output in queue for token_id in output.token_ids]


# --- names -------------------------------------------------------------------------------------


def test_the_names_are_exported() -> None:
    for name in ("Engine", "Request", "ResultQueue", "GenerationConfig", "Selector", "Output"):
        assert getattr(headrace, name) is getattr(native, name)
        assert name in headrace.__all__


def test_a_generation_config_has_every_field_of_the_engine() -> None:
    core = _core.SamplingParams()
    config = GenerationConfig()
    own = {f.name for f in fields(GenerationConfig)} - {"skip_special_tokens"}
    assert own == {name for name in dir(core) if not name.startswith("_")}
    for name in own:
        default = getattr(core, name)
        assert getattr(config, name) == (tuple(default) if isinstance(default, list) else default)
    changed = replace(config, bad_words=[[1, 2]], seed=7, temperature=0.5).to_core()
    assert (changed.bad_words, changed.seed, changed.temperature) == ([[1, 2]], 7, 0.5)


# --- results -----------------------------------------------------------------------------------


def test_ids_in_ids_out(native_engine: Engine) -> None:
    request = native_engine.submit("m", PROMPT, greedy(8), request_id="mine")
    assert request.id == "mine"
    assert request.prompt_token_ids == PROMPT
    assert request.wait(60)
    output = request.results().get_nowait()
    assert output is not None
    assert len(output.token_ids) == 8
    assert output.text == ""
    assert output.finished
    assert output.finish_reason is FinishReason.LENGTH
    assert (output.error_code, output.error_message) == ("ok", "")
    assert request.results() is request.results()
    assert request.results().status() is RequestStatus.FINISHED
    assert request.results().generated_length() == 8
    stats = request.results().stats()
    assert (stats.prompt_tokens, stats.generated_tokens) == (3, 8)


def test_text_in_text_out(native_engine: Engine) -> None:
    tokenizer = native_engine.tokenizer("m")
    assert tokenizer is not None
    config = replace(greedy(40), skip_special_tokens=False)
    request = native_engine.submit("m", "Hello, world!", config)
    assert request.prompt_token_ids == tokenizer.encode("Hello, world!")
    outputs = list(request.results())
    ids = [token_id for output in outputs for token_id in output.token_ids]
    assert "".join(output.text for output in outputs) == tokenizer.decode(ids)
    assert request.results().get().text == ""
    same = native_engine.submit("m", request.prompt_token_ids, config, detokenize=True)
    assert "".join(output.text for output in same.results()) == tokenizer.decode(ids)
    assert (
        native_engine.submit("m", "Hello", greedy(3), detokenize=False).results().get().text == ""
    )


def test_the_token_that_ends_it_is_not_in_the_text(native_engine: Engine) -> None:
    ids = read_all(native_engine.submit("m", PROMPT, greedy(6)).results())
    stop = next(i for i, token_id in enumerate(ids) if token_id not in ids[:i] and i > 0)
    config = replace(greedy(6), stop_token_ids=[ids[stop]])
    request = native_engine.submit("m", PROMPT, config, detokenize=True)
    assert request.wait(60)
    output = request.results().get()
    assert output.token_ids == ids[: stop + 1]
    assert (output.stop_token, output.finish_reason) == (ids[stop], FinishReason.STOP)
    tokenizer = native_engine.tokenizer("m")
    assert tokenizer is not None
    assert output.text == tokenizer.decode(ids[:stop], skip_special_tokens=True)


def test_a_model_without_tokenizer_takes_ids_alone(native_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((native_folder / "config.json").read_text())
    with Engine() as engine:
        engine.install_model("bare", options(tmp_path))
        engine.start_model("bare")
        assert engine.tokenizer("bare") is None
        for text in ({"prompt": "text"}, {"prompt": PROMPT, "detokenize": True}):
            with pytest.raises(ValueError, match="'bare' has no tokenizer"):
                engine.submit("bare", **text)
        assert len(read_all(engine.submit("bare", PROMPT, greedy(4)).results())) == 4


def test_a_reinstalled_name_has_its_own_tokenizer(native_folder: Path) -> None:
    with Engine() as engine:
        engine.install_model("m", options(native_folder))
        first = engine.tokenizer("m")
        assert engine.tokenizer("m") is first
        engine.release_model("m")
        engine.install_model("m", headrace.shipped_model())
        second = engine.tokenizer("m")
        assert first is not None
        assert second is not None
        assert first.vocab_size != second.vocab_size


def test_timeouts(native_engine: Engine) -> None:
    for detokenize in (False, True):
        request = native_engine.submit("m", PROMPT, greedy(1), detokenize=detokenize)
        queue = request.results()
        assert queue.get(60.0) is not None
        assert queue.get_nowait() is None
        assert queue.get(0.0) == queue.get()  # the finished one, again
        with native_engine.submit("m", PROMPT, ENDLESS, detokenize=detokenize) as endless:
            assert not endless.wait(0.0)
            with pytest.raises(ValueError):
                endless.results().get(float("nan"))
        late = native_engine.submit("m", PROMPT, ENDLESS, timeout=0.0, detokenize=detokenize)
        assert [output.error_code for output in late.results()][-1] == "deadline_exceeded"


def test_many_readers_of_one_queue_share_its_text(native_engine: Engine) -> None:
    tokenizer = native_engine.tokenizer("m")
    assert tokenizer is not None
    request = native_engine.submit("m", PROMPT, greedy(2000), detokenize=True)
    parts: list[Any] = []
    ends = []

    def read() -> None:
        for output in request.results():
            parts.append(output)
            ends.append(output.finished)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends.count(True) == 4
    assert sum(len(part.token_ids) for part in parts) == 2000
    alone = native_engine.submit("m", PROMPT, greedy(2000), detokenize=True)
    text = "".join(output.text for output in alone.results())
    assert sum(len(part.text) for part in parts) == len(text)


def test_a_selector_serves_a_batch(native_engine: Engine) -> None:
    selector = Selector()
    queues = {
        tag: native_engine.submit("m", PROMPT, greedy(5 + tag)).results() for tag in range(20)
    }
    for tag, queue in queues.items():
        selector.add(queue, tag)
    with pytest.raises(ValueError, match="tag 3"):
        selector.add(queues[0], 3)
    counts = dict.fromkeys(queues, 0)
    while queues:
        for tag in selector.wait(60.0):
            while (output := queues[tag].get_nowait()) is not None:
                counts[tag] += len(output.token_ids)
                if output.finished:
                    selector.remove(tag)
                    del queues[tag]
                    break
    assert counts == {tag: 5 + tag for tag in range(20)}
    assert selector.take() == []


# --- ends --------------------------------------------------------------------------------------


def test_cancel_keeps_what_was_generated(native_engine: Engine) -> None:
    request = native_engine.submit("m", PROMPT, ENDLESS)
    first = request.results().get()
    request.cancel()
    request.cancel()
    assert request.wait(60)
    rest = read_all(request.results())
    whole = native_engine.submit("m", PROMPT, greedy(len(first.token_ids) + len(rest)))
    assert first.token_ids + rest == read_all(whole.results())
    assert request.results().finish_reason() is FinishReason.ABORT


def test_release_frees_everything_but_the_queue(native_engine: Engine) -> None:
    free = native_engine.model_stats("m").free_kv_blocks
    requests = [native_engine.submit("m", PROMPT * 50, ENDLESS) for _ in range(12)]
    requests[0].results().get()
    assert native_engine.model_stats("m").free_kv_blocks < free
    for request in requests:
        request.release()
        request.release()
    stats = native_engine.model_stats("m")
    assert (stats.free_kv_blocks, stats.running_requests, stats.waiting_requests) == (free, 0, 0)
    for request in requests:
        read_all(request.results())
        assert request.results().finish_reason() is FinishReason.ABORT
        assert request.wait(0.0)
        assert request.seed >= 0


def test_leaving_a_block_releases(native_engine: Engine) -> None:
    with native_engine.submit("m", PROMPT, ENDLESS) as request:
        assert not request.wait(0.0)
    assert request.wait(0.0)
    assert native_engine.model_stats("m").running_requests == 0


# --- states ------------------------------------------------------------------------------------


def refused(code: str, call: Callable[[], Any]) -> None:
    with pytest.raises(HeadraceError) as error:
        call()
    assert error.value.code == code


def test_each_state_answers_each_call(native_folder: Path) -> None:
    engine = Engine()
    for call in (engine.start_model, engine.stop_model, engine.release_model, engine.model_info):
        refused("not_found", lambda call=call: call("m"))  # type: ignore[misc]
    refused("not_found", lambda: engine.submit("m", PROMPT))
    refused("not_found", lambda: engine.submit("m", "text"))
    engine.install_model("m", options(native_folder))
    refused("invalid_state", lambda: engine.install_model("m", options(native_folder)))
    refused("invalid_state", lambda: engine.submit("m", PROMPT))
    refused("invalid_state", lambda: engine.stop_model("m"))
    engine.start_model("m")
    refused("invalid_state", lambda: engine.start_model("m"))
    refused("invalid_argument", lambda: engine.submit("m", []))
    refused("invalid_argument", lambda: engine.submit("m", [-1]))
    refused("invalid_argument", lambda: engine.submit("m", PROMPT, GenerationConfig(top_p=2.0)))
    running = engine.submit("m", PROMPT, ENDLESS)
    assert not engine.stop_model("m", timeout=0.0)
    refused("invalid_state", lambda: engine.submit("m", PROMPT))
    running.cancel()
    assert engine.stop_model("m")
    assert engine.stop_model("m")
    assert engine.model_stats("m").state is native.ModelState.STOPPED
    engine.start_model("m")
    after = engine.submit("m", PROMPT, ENDLESS)
    engine.release_model("m")
    assert after.wait(0.0)
    refused("not_found", lambda: engine.release_model("m"))
    engine.close()
    engine.close()
    assert engine.closed
    refused("invalid_state", lambda: engine.submit("m", PROMPT))
    assert read_all(after.results()) is not None


def test_two_models_side_by_side(native_folder: Path) -> None:
    with Engine() as engine:
        for name in ("a", "b"):
            engine.install_model(name, options(native_folder))
            engine.start_model(name)
        assert engine.models() == ["a", "b"]
        requests = [engine.submit("ab"[i % 2], [3 + i], greedy(20)) for i in range(10)]
        alone = [engine.submit("a", [3 + i], greedy(20)) for i in range(10)]
        for request, other in zip(requests, alone, strict=True):
            assert read_all(request.results()) == read_all(other.results())
        engine.stop_model("a")
        engine.release_model("a")
        assert engine.models() == ["b"]
        assert len(read_all(engine.submit("b", PROMPT, greedy(5)).results())) == 5


def test_objects_outlive_the_engine(native_folder: Path) -> None:
    engine: Engine | None = Engine()
    assert engine is not None
    engine.install_model("m", options(native_folder))
    engine.start_model("m")
    requests = [engine.submit("m", PROMPT, ENDLESS) for _ in range(12)]
    ends: list[FinishReason] = []

    def read(queue: ResultQueue) -> None:
        ends.append(list(queue)[-1].finish_reason)

    readers = [threading.Thread(target=read, args=(r.results(),)) for r in requests]
    for reader in readers:
        reader.start()
    requests[0].results()
    engine = None
    gc.collect()
    for reader in readers:
        reader.join(60)
    assert ends == [FinishReason.ABORT] * 12
    for request in requests:
        request.cancel()
        request.release()
        assert request.wait()
        assert request.results().get().finished
        assert request.results().stats().prompt_tokens == 3


def test_release_while_threads_wait_in_get(native_engine: Engine) -> None:
    blocked = [native_engine.submit("m", PROMPT, ENDLESS, priority=i) for i in range(24)]
    seen: list[FinishReason] = []

    def read(queue: ResultQueue) -> None:
        while not (output := queue.get()).finished:
            pass
        seen.append(output.finish_reason)

    threads = [threading.Thread(target=read, args=(r.results(),)) for r in blocked]
    for thread in threads:
        thread.start()
    native_engine.release_model("m")
    for thread in threads:
        thread.join(60)
    assert seen == [FinishReason.ABORT] * 24


def test_64_threads_submit_2000_requests(native_engine: Engine) -> None:
    expected = {
        n: read_all(native_engine.submit("m", [n], greedy(n)).results()) for n in range(3, 9)
    }
    failures: list[Any] = []

    def client(number: int) -> None:
        try:
            for i in range(32 if number % 4 else 29):
                n = 3 + (number + i) % 6
                request = native_engine.submit("m", [n], greedy(n), detokenize=i % 3 == 0)
                if i % 5 == 4:
                    request.release()
                    assert (
                        read_all(request.results())
                        == expected[n][: request.results().generated_length()]
                    )
                else:
                    assert read_all(request.results()) == expected[n]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    stats = native_engine.model_stats("m")
    assert stats.finished_requests == 2000 + len(expected)
    assert stats.free_kv_blocks == stats.total_kv_blocks


# --- idle --------------------------------------------------------------------------------------


def test_an_idle_engine_with_10_000_queues_uses_no_cpu(native_engine: Engine) -> None:
    queues = [native_engine.submit("m", PROMPT, greedy(1)).results() for _ in range(10_000)]
    selector = Selector()
    native_engine.stop_model("m")
    native_engine.start_model("m")
    for tag, queue in enumerate(queues):
        selector.add(queue, tag)
    assert len(selector.take()) == 10_000  # finished ones report at once, and never again
    waiting = threading.Thread(target=selector.wait, args=(1.5,))
    before, start = time.process_time(), time.monotonic()
    waiting.start()
    waiting.join()
    share = (time.process_time() - before) / (time.monotonic() - start)
    assert share < 0.01
    assert all(queue.status() is RequestStatus.FINISHED for queue in queues)
