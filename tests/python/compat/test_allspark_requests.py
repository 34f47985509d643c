"""Requests through headrace.allspark: what comes back, and how it is asked for."""

from __future__ import annotations

import array
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from allspark_setup import GREEDY, LONG, NAME, OK, config, loader, prompt, running

from headrace.allspark import (
    ASGenerationConfigBuilder,
    AsStatus,
    Engine,
    GenerateRequestStatus,
    HuggingFaceModel,
)

Status = GenerateRequestStatus
RUNNING = (Status.Init, Status.Generating)


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    return loader()


@pytest.fixture(scope="module")
def engine(model: HuggingFaceModel) -> Iterator[Engine]:
    own = running(model)
    yield own
    own.release_model(NAME)


def start(engine: Engine, ids: Any, values: dict[str, Any]) -> tuple[Any, Any]:
    status, handle, queue = engine.start_request_ids(NAME, None, ids, values)
    assert status == OK
    return handle, queue


def answer(engine: Engine, ids: Any, values: dict[str, Any]) -> list[int]:
    handle, queue = start(engine, ids, values)
    assert engine.sync_request(NAME, handle) == OK
    tokens: list[int] = queue.Get().ids_from_generate
    assert engine.release_request(NAME, handle) == OK
    return tokens


def test_an_answer_with_its_end(engine: Engine, model: HuggingFaceModel) -> None:
    tokens = answer(engine, prompt(model), GREEDY)
    assert "5" in model.get_tokenizer().decode(tokens)
    assert tokens[-1] == model.get_tokenizer().eos_token_id  # EOS is part of the output


def test_max_length_counts_the_prompt(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    for room in (1, 2, 5):
        values = {**LONG, "max_length": len(ids) + room}
        assert len(answer(engine, ids, values)) == room


def test_the_first_token_may_be_the_last(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    first = answer(engine, ids, {**LONG, "max_length": len(ids) + 1})
    handle, queue = start(engine, ids, {**LONG, "stop_words_ids": [first]})
    seen = [queue.GenerateStatus()]
    tokens = []
    while seen[-1] in RUNNING:
        tokens += queue.Get().ids_from_generate
        seen.append(queue.GenerateStatus())
    assert (tokens, seen[-1]) == (first, Status.GenerateFinished)
    engine.release_request(NAME, handle)


def test_early_stopping_off_goes_past_the_end(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    short = answer(engine, ids, GREEDY)
    assert len(answer(engine, ids, {**GREEDY, "early_stopping": False})) == 64 - len(ids)
    assert len(ids) + len(short) < 64


def test_stop_words_reach_across_the_prompt(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    tokens = answer(engine, ids, GREEDY)
    assert answer(engine, ids, {**GREEDY, "stop_words_ids": [[ids[-1], tokens[0]]]}) == tokens[:1]
    inside = {**GREEDY, "stop_words_ids": [[7, 7], tokens[1:3]]}
    assert answer(engine, ids, inside) == tokens[:3]
    # min_length holds back EOS alone.
    patient = {**inside, "min_length": 60}
    assert answer(engine, ids, patient) == tokens[:3]


def test_min_length_counts_the_prompt(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    tokens = answer(engine, ids, GREEDY)
    total = len(ids) + len(tokens)
    assert answer(engine, ids, {**GREEDY, "min_length": total - 1}) == tokens
    longer = answer(engine, ids, {**GREEDY, "min_length": total + 1})
    assert longer[: len(tokens) - 1] == tokens[:-1]
    assert len(longer) > len(tokens)


def test_bad_words_and_n_grams(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    tokens = answer(engine, ids, GREEDY)
    assert answer(engine, ids, {**GREEDY, "bad_words_ids": [tokens[:1]]})[0] != tokens[0]
    values = {**GREEDY, "max_length": 200, "early_stopping": False, "no_repeat_ngram_size": 3}
    free = ids + answer(engine, ids, values)
    grams = list(zip(free, free[1:], free[2:], strict=False))
    first = len(ids) - 2  # the first that ends in a generated token
    assert all(grams[place] not in grams[:place] for place in range(first, len(grams)))


def test_the_documented_loop(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    expected = answer(engine, ids, GREEDY)
    for _ in range(50):
        handle, queue = start(engine, ids, GREEDY)
        generated: list[int] = []
        status = queue.GenerateStatus()
        while status in RUNNING:
            elements = queue.Get()
            if elements is not None:
                generated += elements.ids_from_generate
            status = queue.GenerateStatus()
        assert (generated, status) == (expected, Status.GenerateFinished)
        assert queue.Get().ids_from_generate == []  # at once, again and again
        assert queue.GetNoWait().ids_from_generate == []
        assert queue.GetWithTimeout(10).ids_from_generate == []
        assert queue.GeneratedLength() == len(expected)
        engine.release_request(NAME, handle)


def test_holders_of_ids(engine: Engine, model: HuggingFaceModel) -> None:
    numpy = pytest.importorskip("numpy")
    ids = prompt(model)
    expected = answer(engine, ids, GREEDY)
    frozen = numpy.array(ids)
    frozen.flags.writeable = False
    holders = [
        [ids],
        tuple(ids),
        numpy.array(ids),
        numpy.array([ids], dtype=numpy.int32),
        numpy.repeat(numpy.array(ids), 2)[::2],
        numpy.array(ids).__dlpack__(),
        array.array("q", ids),
        [numpy.array(ids)],
        frozen,
    ]
    for holder in holders:
        assert answer(engine, holder, GREEDY) == expected
    inputs = {"input_ids": numpy.array([ids]).__dlpack__(), "attention_mask": None}
    for _ in range(3):  # a capsule serves many requests
        status, handle, queue = engine.start_request(NAME, inputs, GREEDY)
        assert status == OK
        engine.sync_request(NAME, handle)
        assert queue.Get().ids_from_generate == expected
        engine.release_request(NAME, handle)


def test_the_originals_keyword_of_queues(engine: Engine, model: HuggingFaceModel) -> None:
    handle, queue = start(engine, prompt(model), GREEDY)
    engine.sync_request(NAME, handle)
    assert engine.get_request_status(NAME, result_queue=queue) == Status.GenerateFinished
    assert engine.get_wait(NAME, result_queue=queue)
    assert engine.get_no_wait(NAME, result_queue=queue) == []
    engine.release_request(NAME, handle)


def test_text_and_batches(engine: Engine, model: HuggingFaceModel) -> None:
    text = "User: Count from 3 to 6.\nAssistant: "
    builder = ASGenerationConfigBuilder().top_k(1).max_length(48)
    expected = answer(engine, model.get_tokenizer().encode(text), builder.build())
    for owner in (model, None):  # the loader's tokenizer, or the installed model's
        status, handle, queue = engine.start_request_text(NAME, owner, text, builder)
        assert status == OK
        engine.sync_request(NAME, handle)
        assert queue.Get().ids_from_generate == expected
        engine.release_request(NAME, handle)
    status, handles, queues = engine.start_request_text(NAME, model, [text, text], builder)
    assert status == OK
    assert engine.sync_request(NAME, handles) == OK
    assert [queue.Get().ids_from_generate for queue in queues] == [expected, expected]
    assert engine.release_request(NAME, handles) == OK
    refused = engine.start_request_text(NAME, model, [text, ""], builder)
    assert refused == (AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR, None, None)


def test_seeds(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model, "Tell me about the sea.")
    hot = ASGenerationConfigBuilder().temperature(1.5).top_k(0).max_length(80).early_stopping(False)
    fresh = {tuple(answer(engine, ids, hot.build())) for _ in range(4)}
    assert len(fresh) > 1
    assert len({hot.build()["seed"] for _ in range(8)}) > 1
    hot.update(seed=11)
    assert len({tuple(answer(engine, ids, hot.build())) for _ in range(3)}) == 1
    negative = answer(engine, ids, {**hot.build(), "seed": -3})
    assert negative == answer(engine, ids, {**hot.build(), "seed": -3})


def test_greedy_ways(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    expected = answer(engine, ids, GREEDY)
    for values in ({"temperature": 0.0}, {"temperature": -1.0}, {"do_sample": False}):
        assert answer(engine, ids, {"max_length": 64, "temperature": 1.9, **values}) == expected


def test_log_probabilities(engine: Engine, model: HuggingFaceModel) -> None:
    values = {**GREEDY, "logprobs": True, "top_logprobs": 3}
    handle, queue = start(engine, prompt(model), values)
    engine.sync_request(NAME, handle)
    element = queue.Get()
    engine.release_request(NAME, handle)
    assert len(element.ids_from_generate) == len(element.log_probs_list)
    for token, top, own in zip(
        element.ids_from_generate, element.log_probs_list, element.token_logprobs_list, strict=True
    ):
        assert len(top) == 3
        assert top[0] == (token, own)  # greedy: the best is the one
        assert own <= 0


def test_statistics(engine: Engine, model: HuggingFaceModel) -> None:
    before = engine.get_as_engine_stat(NAME)
    ids = prompt(model, "What is the capital of France?") * 3
    handle, queue = start(engine, ids, {**GREEDY, "max_length": len(ids) + 20})
    engine.sync_request(NAME, handle)
    tokens = queue.Get().ids_from_generate
    stat, info = engine.get_as_engine_stat(NAME), queue.RequestStatInfo()
    assert stat.total_generated_token - before.total_generated_token == len(tokens)
    assert info["context_token_length"] == len(ids)
    assert info["generated_token_length"] == len(tokens) == queue.GeneratedLength()
    assert info["arrival_time"] <= info["first_token_time"] <= info["last_token_time"]
    assert 0 <= info["time_in_queue"] <= info["time_to_first_token"] <= info["finished_time"]
    assert all(isinstance(value, int) for value in info.values())
    assert stat.total_token == stat.total_span * stat.span_size > 0
    engine.release_request(NAME, handle)
    again, queue = start(engine, ids, GREEDY | {"max_length": len(ids) + 2})
    engine.sync_request(NAME, again)
    cached = queue.Get().prefix_cache_len
    assert cached == queue.RequestStatInfo()["context_cached_length"] >= 16
    engine.release_request(NAME, again)
    later = engine.get_as_engine_stat(NAME)
    assert later.prefix_cache_hit_token - stat.prefix_cache_hit_token == cached
    assert later.prefix_cache_hit_rate + later.prefix_cache_miss_rate == pytest.approx(1.0)
    assert "vocab_size: 2048" in engine.get_model_info(NAME)


def test_stop_keeps_what_was_generated(engine: Engine, model: HuggingFaceModel) -> None:
    handle, queue = start(engine, prompt(model), LONG)
    first = queue.Get().ids_from_generate
    assert engine.stop_request(NAME, handle) == OK
    rest = queue.Get().ids_from_generate
    assert queue.GenerateStatus() == Status.GenerateFinished
    assert queue.GeneratedLength() == len(first) + len(rest) > 0
    assert engine.stop_request(NAME, handle) == OK  # no effect
    assert engine.release_request(NAME, handle) == OK


def test_sync_holds_up_nobody_else(engine: Engine, model: HuggingFaceModel) -> None:
    slow, _ = start(engine, prompt(model), LONG)
    synced = threading.Event()

    def sync() -> None:
        engine.sync_request(NAME, slow)
        synced.set()

    waiter = threading.Thread(target=sync)
    waiter.start()
    try:
        assert answer(engine, prompt(model), GREEDY)
        assert engine.get_as_engine_stat(NAME).running_request >= 0
        engine.stop_request(NAME, slow)
        assert synced.wait(60)
    finally:
        engine.release_request(NAME, slow)
        waiter.join()


def test_sync_of_all(engine: Engine, model: HuggingFaceModel) -> None:
    handles = [start(engine, prompt(model), GREEDY)[0] for _ in range(12)]
    assert engine.sync_request(NAME, None) == OK
    for handle in handles:
        assert handle.queue.GenerateStatus() == Status.GenerateFinished  # sync: shown at once
        assert handle.queue.Get().ids_from_generate
        engine.release_request(NAME, handle)


def test_many_threads(engine: Engine, model: HuggingFaceModel) -> None:
    ids = prompt(model)
    expected = answer(engine, ids, GREEDY)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn in range(6):
            handle, queue = start(engine, ids, GREEDY)
            tokens: list[int] = []
            if (number + turn) % 3 == 0:
                engine.stop_request(NAME, handle)
                while elements := queue.Get().ids_from_generate:
                    tokens += elements
                good = tokens == expected[: len(tokens)]
            else:
                while queue.GenerateStatus() in RUNNING:
                    tokens += queue.Get().ids_from_generate
                good = tokens == expected
            if not good or engine.release_request(NAME, handle) != OK:
                wrong.append(tokens)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    stat = engine.get_as_engine_stat(NAME)
    assert (stat.running_request, stat.pendding_request) == (0, 0)
    assert stat.free_token == stat.total_token


def test_requests_print_nothing(
    engine: Engine, model: HuggingFaceModel, capfd: pytest.CaptureFixture[str]
) -> None:
    answer(engine, prompt(model), GREEDY)
    engine.print_gen_cfg({"top_k": 1, "vocab": {}})
    assert capfd.readouterr() == ("", "")


def test_unknown_keys_are_logged_once(
    engine: Engine, model: HuggingFaceModel, caplog: pytest.LogCaptureFixture
) -> None:
    values = {**GREEDY, "temperatur": 0.5, "length_penalty": None}
    with caplog.at_level(logging.WARNING, "headrace"):
        answer(engine, prompt(model), values)
        answer(engine, prompt(model), values)
    hints = [r.message for r in caplog.records if "temperatur" in r.message]
    assert len(hints) == 1
    assert "did you mean 'temperature'?" in hints[0]


EXCEED, PARAM = AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR, AsStatus.ALLSPARK_PARAM_ERROR
# In the order in which they are checked: of two problems the first one's status comes back.
REFUSALS = [
    ({"max_length": 513}, [5], EXCEED),
    ({"max_length": 512}, [5] * 511, EXCEED),
    ({}, [], EXCEED),
    ({"max_length": 3}, [5] * 3, EXCEED),
    ({"max_length": 2}, [5] * 3, EXCEED),
    ({"top_k": -1}, [5], PARAM),
    ({"top_p": 1.5}, [5], PARAM),
    ({"top_p": float("nan")}, [5], PARAM),
    ({}, [[5]] * 9, EXCEED),
    ({}, [[5]] * 2, PARAM),
    ({"logprobs": True, "top_logprobs": 11}, [5], PARAM),
    ({"logprobs": True, "top_logprobs": -1}, [5], PARAM),
    ({"repetition_penalty": 2.5}, [5], PARAM),
    ({"presence_penalty": -2.5}, [5], PARAM),
    ({"frequency_penalty": 2.5}, [5], PARAM),
    ({"repetition_penalty": 0.0}, [5], PARAM),
    ({"temperature": float("inf")}, [5], PARAM),
    ({"num_beams": 2}, [5], PARAM),
    ({"mm_info": object()}, [5], PARAM),
    ({"temperature": "hot"}, [5], PARAM),
    ({"max_length": 30.5}, [5], PARAM),
    ({"stop_words_ids": [5]}, [5], PARAM),
    ({"stop_words_ids": [[99999]]}, [5], PARAM),
    ({"seed": 1 << 80}, [5], PARAM),
    ({"no_repeat_ngram_size": -1}, [5], PARAM),
    ({}, [99999], PARAM),
    ({}, [-1], PARAM),
    ({}, [1 << 70], PARAM),
]


@pytest.mark.parametrize(("values", "ids", "status"), REFUSALS)
def test_refusals(engine: Engine, values: dict[str, Any], ids: Any, status: AsStatus) -> None:
    rows = ids if ids and isinstance(ids[0], list) else [ids]
    for each in (values, {**values, "presence_penalty": values.get("presence_penalty", 0)}):
        assert engine.start_request(NAME, {"input_ids": rows}, each) == (status, None, None)
    assert engine.get_as_engine_stat(NAME).pendding_request == 0


def test_the_first_problem_counts(engine: Engine) -> None:
    worse = {"max_length": 513, "top_k": -1, "repetition_penalty": 9}
    assert engine.start_request(NAME, {"input_ids": [[5]]}, worse)[0] == EXCEED
    assert engine.start_request("nothing", {"input_ids": [[5]]}, worse)[0] == PARAM
    for inputs in ({}, {"input_ids": None}, {"input_ids": "text"}, {"input_ids": [[[5]]]}, None):
        assert engine.start_request(NAME, inputs, {}) == (PARAM, None, None)  # type: ignore[arg-type]


def test_ids_of_the_wrong_kind_raise(engine: Engine) -> None:
    for ids in ("text", None, [1.5], [[1], 2], {"a": 1}):
        with pytest.raises(ValueError, match="ids must be"):
            engine.start_request_ids(NAME, None, ids, GREEDY)


def test_a_config_is_not_changed(engine: Engine, model: HuggingFaceModel) -> None:
    values = {**GREEDY, "vocab": {"a": 1}, "vocab_type": None}
    answer(engine, prompt(model), values)
    assert values == {**GREEDY, "vocab": {"a": 1}, "vocab_type": None}


def test_refusal_is_logged(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace"):
        engine.start_request(NAME, {"input_ids": [[5]]}, {"max_length": 513})
    assert "max_length 513 exceeds engine_max_length 512" in caplog.text
    assert "ALLSPARK_EXCEED_LIMIT_ERROR" in caplog.text


def test_a_second_engine_is_its_own(engine: Engine, model: HuggingFaceModel) -> None:
    other = Engine()
    other.install_model(config(model))
    assert other.start_model(NAME) == OK
    handle, _ = start(engine, prompt(model), GREEDY)
    assert other.stop_request(NAME, handle) == AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID
    assert engine.release_request(NAME, handle) == OK
    other.release_model(NAME)
