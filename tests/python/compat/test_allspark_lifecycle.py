"""Models and requests of headrace.allspark through their lives, in and out of order."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from allspark_setup import (
    GREEDY,
    LONG,
    NAME,
    OK,
    config,
    loader,
    prompt,
    running,
)

from headrace import shipped_model
from headrace.allspark import (
    AsCacheMode,
    AsEvictionStrategy,
    AsException,
    AsModelConfig,
    AsStatus,
    Engine,
    GenerateRequestStatus,
    HuggingFaceModel,
    TargetDevice,
)

PARAM = AsStatus.ALLSPARK_PARAM_ERROR
DENIED = AsStatus.ALLSPARK_REQUEST_DENIED
ILLEGAL = AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID
INVALID = AsStatus.ALLSPARK_INVALID_CALL_ERROR
Status = GenerateRequestStatus


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    return loader()


def begin(engine: Engine, model: HuggingFaceModel, values: Any = GREEDY) -> tuple[Any, Any]:
    status, handle, queue = engine.start_request_ids(NAME, model, prompt(model), values)
    assert status == OK
    return handle, queue


def test_calls_before_anything_is_there() -> None:
    engine = Engine()
    assert engine.start_model(NAME) == PARAM
    assert engine.stop_model(NAME) == PARAM
    assert engine.release_model(NAME) == PARAM
    assert engine.start_request(NAME, {"input_ids": [[1]]}, {}) == (PARAM, None, None)
    for call in (engine.stop_request, engine.release_request, engine.sync_request):
        assert call(NAME, None) == PARAM
    assert engine.get_as_engine_stat(NAME).total_token == 0
    with pytest.raises(RuntimeError, match="no model 'tiny' is installed"):
        engine.get_model_info(NAME)


def test_use_before_start(model: HuggingFaceModel) -> None:
    engine = Engine()
    engine.install_model(config(model))
    assert engine.get_as_engine_stat(NAME).running_request == 0
    assert engine.start_request(NAME, {"input_ids": [[1]]}, {})[0] == INVALID
    assert engine.stop_model(NAME) == INVALID
    assert engine.sync_request(NAME, None) == OK
    assert engine.start_model(NAME) == OK
    assert engine.start_model(NAME) == INVALID
    assert engine.release_model(NAME) == OK


def test_stop_drains_and_denies(model: HuggingFaceModel) -> None:
    engine = running(model, max_batch=2)
    queued = [begin(engine, model, LONG) for _ in range(4)]
    stopped: list[AsStatus] = []
    thread = threading.Thread(target=lambda: stopped.append(engine.stop_model(NAME)))
    thread.start()
    while engine.start_request(NAME, {"input_ids": [[5]]}, GREEDY)[0] == OK:
        pass
    assert engine.start_request(NAME, {"input_ids": [[5]]}, GREEDY)[0] == DENIED
    assert engine.stop_model(NAME) == DENIED
    thread.join()
    # The one that was started while waiting, too, was never released.
    assert stopped == [AsStatus.ALLSPARK_RUNTIME_ERROR]
    for handle, queue in queued:
        assert len(queue.Get().ids_from_generate) == 400 - len(prompt(model))
        assert engine.release_request(NAME, handle) == OK
    assert engine.start_model(NAME) == OK  # a stopped model may run again
    handle, queue = begin(engine, model)
    assert queue.Get().ids_from_generate
    engine.release_request(NAME, handle)
    engine.sync_request(NAME, None)
    engine.release_model(NAME)


def test_stop_is_a_success_once_all_is_released(model: HuggingFaceModel) -> None:
    engine = running(model)
    handle, _ = begin(engine, model)
    assert engine.release_request(NAME, handle) == OK
    assert engine.stop_model(NAME) == OK
    assert engine.stop_model(NAME) == DENIED
    assert engine.release_model(NAME) == OK
    assert engine.release_model(NAME) == PARAM


def test_a_queue_outlives_everything(model: HuggingFaceModel) -> None:
    engine = running(model)
    handle, queue = begin(engine, model)
    engine.sync_request(NAME, handle)
    length = queue.GeneratedLength()
    assert engine.release_request(NAME, handle) == OK
    assert engine.release_request(NAME, handle) == ILLEGAL
    assert engine.stop_request(NAME, handle) == ILLEGAL
    assert engine.sync_request(NAME, handle) == ILLEGAL
    engine.release_model(NAME)
    assert engine.release_request(NAME, handle) == PARAM
    del engine
    gc.collect()
    assert len(queue.Get().ids_from_generate) == length
    assert queue.Get().ids_from_generate == []
    assert queue.GenerateStatus() == Status.GenerateFinished
    assert queue.RequestStatInfo()["generated_token_length"] == length
    assert "request" in repr(handle)


def test_release_wakes_who_waits(model: HuggingFaceModel) -> None:
    engine = running(model, max_batch=1)
    empty = engine.get_as_engine_stat(NAME)
    first, _ = begin(engine, model, LONG)
    waiting, queue = begin(engine, model, LONG)  # behind the first: it has no token yet
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.append(queue.Get()))
    reader.start()
    assert engine.release_request(NAME, waiting) == OK
    reader.join(60)
    assert not reader.is_alive()
    assert engine.release_request(NAME, first) == OK
    stat = engine.get_as_engine_stat(NAME)
    assert (stat.running_request, stat.pendding_request) == (0, 0)
    assert stat.free_token == stat.total_token
    for name in ("used_device_memory_pool_size", "total_device_memory_pool_size"):
        assert getattr(stat, name) == getattr(empty, name) > 0
    engine.release_model(NAME)


def test_a_queued_request_can_be_stopped(model: HuggingFaceModel) -> None:
    engine = running(model, max_batch=1)
    first, _ = begin(engine, model, LONG)
    second, queue = begin(engine, model, LONG)
    assert queue.GenerateStatus() == Status.Init
    assert engine.stop_request(NAME, second) == OK
    assert queue.GenerateStatus() == Status.GenerateFinished
    assert queue.Get().ids_from_generate == []
    assert engine.release_request(NAME, [first, second]) == OK
    engine.release_model(NAME)


def test_release_of_a_model_interrupts_its_requests(model: HuggingFaceModel) -> None:
    engine = running(model)
    handle, queue = begin(engine, model, LONG)
    queue.Get()
    engine.release_model(NAME)
    while queue.Get().ids_from_generate:
        pass
    assert queue.GenerateStatus() == Status.GenerateInterrupted
    assert handle.model.handles() == []
    assert engine.get_as_engine_stat(NAME).total_device_memory_pool_size == 0


def test_two_models_and_one_after_another(model: HuggingFaceModel) -> None:
    engine = running(model)
    with pytest.raises(AsException, match="installed already"):
        engine.install_model(config(model))
    engine.install_model(config(model, "other", max_batch=2))
    assert engine.start_model("other") == OK
    ids = prompt(model)
    answers = []
    for name in (NAME, "other"):
        _, handle, queue = engine.start_request_ids(name, model, ids, GREEDY)
        engine.sync_request(name, handle)
        answers.append(queue.Get().ids_from_generate)
        assert engine.release_request("other" if name == NAME else NAME, handle) == ILLEGAL
        assert engine.release_request(name, handle) == OK
    assert answers[0] == answers[1] != []
    for name in (NAME, "other"):
        assert engine.stop_model(name) == OK
        assert engine.release_model(name) == OK
    engine.install_model(config(model))  # the name is free again
    assert engine.release_model(NAME) == OK


def test_wrong_handles(model: HuggingFaceModel) -> None:
    engine = running(model)
    assert engine.stop_request(NAME, None) == AsStatus.ALLSPARK_EMPTY_REQUEST
    assert engine.release_request(NAME, None) == AsStatus.ALLSPARK_EMPTY_REQUEST
    with pytest.raises(TypeError, match="not a request handle"):
        engine.stop_request(NAME, 5)  # type: ignore[arg-type]
    assert engine.release_request(NAME, []) == OK
    engine.release_model(NAME)


def test_an_engine_that_is_dropped_ends_its_requests(model: HuggingFaceModel) -> None:
    engine = running(model)
    _, queue = begin(engine, model, LONG)
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    while queue.Get().ids_from_generate:
        pass
    assert queue.GenerateStatus() in (Status.GenerateInterrupted, Status.GenerateFinished)


def short_of_blocks(model: HuggingFaceModel, **values: Any) -> tuple[list[Status], list[int]]:
    """Four requests of 20 blocks each where 40 are: how they end, and how many tokens they have."""
    from headrace.allspark.core import engine_api

    engine = Engine()
    options = engine_api.model_options

    def few_blocks(given: Any) -> Any:
        return options({**given, "num_kv_blocks": 40})

    engine_api.model_options = few_blocks  # type: ignore[assignment]
    try:
        engine.install_model(config(model, enable_prefix_cache=False, **values))
    finally:
        engine_api.model_options = options  # type: ignore[assignment]
    engine.start_model(NAME)
    started = [begin(engine, model, {**LONG, "max_length": 320}) for _ in range(4)]
    engine.sync_request(NAME, None)
    ends = [queue.GenerateStatus() for _, queue in started]
    lengths = [len(queue.Get().ids_from_generate) for _, queue in started]
    engine.release_model(NAME)
    return ends, lengths


def test_without_room_requests_wait_or_are_interrupted(model: HuggingFaceModel) -> None:
    full = 320 - len(prompt(model))
    ends, lengths = short_of_blocks(model)
    assert set(ends) == {Status.GenerateFinished}
    assert set(lengths) == {full}
    for strategy in AsEvictionStrategy:
        ends, lengths = short_of_blocks(model, eviction_strategy=strategy)
        assert Status.GenerateInterrupted in ends
        assert Status.GenerateFinished in ends
        for end, length in zip(ends, lengths, strict=True):
            assert (length == full) == (end == Status.GenerateFinished)
            assert length > 0  # what was generated stays


# No plug-in, no driver, or no GPU of that number.
_NO_GPU = "CUDA plug-in|device cuda"
INSTALL_ERRORS: list[tuple[dict[str, Any], AsStatus, str]] = [
    ({"model_name": ""}, PARAM, "model_name is empty"),
    ({"weights_path": ""}, PARAM, "weights_path is empty"),
    ({"model_path": "/nowhere"}, AsStatus.ALLSPARK_IO_ERROR, "/nowhere"),
    ({"engine_max_length": 2}, PARAM, "engine_max_length must be above 2"),
    ({"engine_max_batch": 0}, PARAM, "engine_max_batch must be above 0"),
    ({"cache_span_size": 33}, PARAM, "cache_span_size must be one of"),
    ({"matmul_precision": "low"}, PARAM, "matmul_precision must be one of"),
    ({"compute_unit": "TPU:0"}, PARAM, "compute unit 'TPU:0'"),
    ({"compute_unit": "CUDA:99"}, PARAM, _NO_GPU),
    ({"compute_unit": "CUDA:98,99"}, PARAM, _NO_GPU),
    ({"compute_unit": "CUDA:0,0"}, PARAM, "pass those of different GPUs"),
    ({"data_type": "int8"}, PARAM, "none of auto, float32"),
    ({"engine_max_prefill_length": -1}, PARAM, "engine_max_prefill_length"),
    (
        {"quantization": {"quant_method": "gptq", "weight_format": "int8"}},
        PARAM,
        "has no quantization_config of it",
    ),
]


@pytest.mark.parametrize("mode", [AsCacheMode.AsCacheQuantI8, AsCacheMode.AsCacheQuantU4])
def test_quantized_caches_answer_alike(model: HuggingFaceModel, mode: AsCacheMode) -> None:
    answers = []
    for values in ({}, {"cache_mode": mode}):
        engine = running(model, **values)
        handle, queue = begin(engine, model)
        engine.sync_request(NAME, handle)
        answers.append(queue.Get().ids_from_generate)
        engine.release_request(NAME, handle)
        engine.release_model(NAME)
    assert answers[0] == answers[1]  # the answer to an easy question


def test_weights_are_kept_for_the_next_start(
    model: HuggingFaceModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    engine = running(model, packed_weights="auto")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*.headrace")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    engine.release_model(NAME)


@pytest.mark.parametrize(("values", "status", "message"), INSTALL_ERRORS)
def test_install_errors(
    model: HuggingFaceModel, values: dict[str, Any], status: AsStatus, message: str
) -> None:
    engine = Engine()
    with pytest.raises(RuntimeError, match=message) as caught:
        engine.install_model(config(model, **values))
    assert caught.value.status == status
    assert str(caught.value).startswith(status.name)
    engine.install_model(config(model))  # nothing is left behind
    engine.release_model(NAME)


def test_the_memory_bound_of_the_environment(
    model: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFC_MEM_RATIO", "0.00001")
    monkeypatch.setenv("BFC_LEFTOVER_MB", "0")
    with pytest.raises(RuntimeError, match="ALLSPARK_MEMORY_ERROR"):
        Engine().install_model(config(model))


def test_keyword_arguments_without_limits_fail_to_install() -> None:
    folder = shipped_model()
    short = AsModelConfig(NAME, folder, folder, "CPU:0")
    with pytest.raises(RuntimeError, match="engine_max_length"):
        Engine().install_model(short)
    with pytest.raises(TypeError, match="no field 'max_batch'"):
        AsModelConfig(NAME, folder, folder, max_batch=3)
    with pytest.raises(TypeError, match="takes an AsModelConfig"):
        Engine().install_model({"model_name": NAME})  # type: ignore[arg-type]


def test_cuda_is_not_replaced(model: HuggingFaceModel) -> None:
    builder = model.create_reference_runtime_config_builder(NAME, TargetDevice.CUDA, [99], 8)
    with pytest.raises(RuntimeError, match=_NO_GPU):
        Engine().install_model(builder.build())


def test_the_engine_introduces_itself_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        engine = Engine()
    assert "AllSpark Init with Version" in caplog.text
    assert repr(engine) == f"AsEngine: version={engine.get_version_full()} "
    version, _, sha = engine.get_version_full().partition("/")
    assert all(part.isdecimal() for part in version.split("."))
    assert sha.startswith("(GitSha1:")
    assert (engine.get_rank_id(), engine.is_allspark_work_as_service()) == (0, False)
    with pytest.raises(RuntimeError, match="can't be swapped out"):
        engine.unload_device_mem(NAME)
    with pytest.raises(ValueError, match="give save_dir"):
        engine.serialize_model_from_torch("m", "t", {}, {})
    with pytest.raises(ValueError, match="save_pretrained"):
        engine.serialize_model_from_torch("m", "t", {}, {}, save_dir="x")
