"""The C API through ctypes: the shared library as another language sees it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_api import FOREVER, CApi, ModelOptions, Output, RequestOptions, SamplingParams

import headrace

MODEL = Path(__file__).resolve().parents[2] / "examples/tiny_model/checkpoint"
NOT_FOUND, INVALID_ARGUMENT = 2, 1
FINISH_LENGTH, FINISH_ABORT = 2, 3


@pytest.fixture(scope="module")
def api() -> CApi:
    build = os.environ.get("HEADRACE_BUILD_DIR")
    try:
        library = headrace.get_library()
    except FileNotFoundError:
        if build is None:
            pytest.skip("headrace is not installed and HEADRACE_BUILD_DIR is not set")
        library = str(Path(build) / "libheadrace.so")
    return CApi(library)


@pytest.fixture(scope="module")
def engine(api: CApi) -> Iterator[ctypes.c_void_p]:
    made = ctypes.c_void_p()
    api.check(api.engine_create(None, ctypes.byref(made)))
    options = ModelOptions()
    api.model_options_init(options, ctypes.sizeof(options))
    assert (options.memory_utilization, options.max_num_seqs, options.block_size) == (0.9, 64, 64)
    options.path = os.fsencode(MODEL)
    api.check(api.engine_install_model(made, b"m", options))
    api.check(api.engine_start_model(made, b"m"))
    yield made
    api.engine_destroy(made)


def submit(api: CApi, engine: ctypes.c_void_p, ids: list[int], max_tokens: int) -> ctypes.c_void_p:
    sampling = SamplingParams()
    api.sampling_params_init(sampling, ctypes.sizeof(sampling))
    assert (sampling.temperature, sampling.top_p, sampling.logprobs) == (1.0, 1.0, -1)
    sampling.temperature = 0
    sampling.ignore_eos = 1
    sampling.max_tokens = max_tokens
    options = RequestOptions()
    api.request_options_init(options, ctypes.sizeof(options))
    options.prompt_token_ids = (ctypes.c_int32 * len(ids))(*ids)
    options.num_prompt_token_ids = len(ids)
    options.sampling = ctypes.pointer(sampling)
    request = ctypes.c_void_p()
    api.check(api.engine_submit(engine, b"m", options, ctypes.byref(request)))
    return request


def read_all(api: CApi, request: ctypes.c_void_p) -> tuple[list[int], int]:
    tokens: list[int] = []
    output = ctypes.POINTER(Output)()
    while True:
        api.check(api.request_get(request, FOREVER, output))
        tokens += output.contents.token_ids[: output.contents.num_token_ids]
        reason = output.contents.finish_reason
        finished = output.contents.finished
        api.output_release(output)
        if finished:
            return tokens, reason


def test_version(api: CApi) -> None:
    assert api.version().decode() == headrace.version()


def test_threads_get_the_tokens_that_python_gets(api: CApi, engine: ctypes.c_void_p) -> None:
    prompts = [[5, 17, 42, number] for number in range(6)]
    params = headrace.SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    with headrace.LLM(str(MODEL)) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    answers: dict[int, tuple[list[int], int]] = {}

    def ask(number: int) -> None:
        request = submit(api, engine, prompts[number], 16)
        answers[number] = read_all(api, request)
        api.request_release(request)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, output in enumerate(outputs):
        assert answers[number] == (list(output.outputs.token_ids), FINISH_LENGTH)


def test_cancel(api: CApi, engine: ctypes.c_void_p) -> None:
    request = submit(api, engine, [5, 17], 4000)
    api.check(api.request_cancel(request))
    assert read_all(api, request)[1] == FINISH_ABORT
    api.request_release(request)


def test_errors_have_code_and_message(api: CApi, engine: ctypes.c_void_p) -> None:
    assert api.engine_start_model(engine, b"other") == NOT_FOUND
    assert "'other'" in api.last_error_message().decode()
    assert api.request_cancel(None) == INVALID_ARGUMENT
    with pytest.raises(RuntimeError, match="1: the prompt is empty"):
        submit(api, engine, [], 1)
    assert api.last_error_code() == INVALID_ARGUMENT
