"""The C API through ctypes: the shared library as another language sees it."""

from __future__ import annotations

import ctypes
import json
import os
import random
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_api import FOREVER, CApi, LoraInfos, ModelOptions, Output, RequestOptions, SamplingParams

import headrace

MODEL = Path(__file__).resolve().parents[3] / "examples/tiny_model/checkpoint"
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
    options.max_loras = 1
    api.check(api.engine_install_model(made, b"m", options))
    api.check(api.engine_start_model(made, b"m"))
    yield made
    api.engine_destroy(made)


def submit(
    api: CApi, engine: ctypes.c_void_p, ids: list[int], max_tokens: int, lora: str = ""
) -> ctypes.c_void_p:
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
    options.lora_name = lora.encode()
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


def write_adapter(folder: Path) -> None:
    """A PEFT folder: random products on the first layers' query projections."""
    rank, layers, width = 4, 3, 192
    draw = random.Random(7)
    header: dict[str, object] = {}
    data = b""
    for layer in range(layers):
        for part, shape in (("A", [rank, width]), ("B", [width, rank])):
            values = [draw.uniform(-0.5, 0.5) for _ in range(rank * width)]
            chunk = struct.pack(f"<{len(values)}f", *values)
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"
            offsets = [len(data), len(data) + len(chunk)]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
            data += chunk
    text = json.dumps(header).encode()
    folder.mkdir()
    content = struct.pack("<Q", len(text)) + text + data
    (folder / "adapter_model.safetensors").write_bytes(content)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def test_an_adapter(api: CApi, engine: ctypes.c_void_p, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    write_adapter(folder)
    prompt = [5, 17, 42]
    params = headrace.SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    with headrace.LLM(str(MODEL), enable_lora=True) as llm:
        lora = headrace.LoRARequest("style", 1, str(folder))
        (output,) = llm.generate(prompt, params, use_tqdm=False, lora_request=lora)

    assert api.engine_load_lora(engine, b"m", b"style", b"no-such-folder") == NOT_FOUND
    api.check(api.engine_load_lora(engine, b"m", b"style", os.fsencode(folder)))
    answers = []
    for name in ("style", ""):
        request = submit(api, engine, prompt, 16, lora=name)
        answers.append(read_all(api, request)[0])
        api.request_release(request)
    infos = ctypes.POINTER(LoraInfos)()
    api.check(api.engine_loras(engine, b"m", infos))
    assert infos.contents.count == 1
    info = infos.contents.infos[0].contents
    assert (info.name, info.rank, info.bytes > 0) == (b"style", 4, True)
    api.lora_infos_release(infos)
    assert answers[0] == list(output.outputs.token_ids)
    assert answers[0] != answers[1]
    api.check(api.engine_unload_lora(engine, b"m", b"style"))
    with pytest.raises(RuntimeError, match="style"):
        submit(api, engine, prompt, 16, lora="style")


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
