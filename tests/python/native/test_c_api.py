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
from typing import Any

import pytest
from c_api import (
    FOREVER,
    CApi,
    ChatOptions,
    LoraInfos,
    ModelOptions,
    Output,
    RequestOptions,
    SamplingParams,
    Text,
)

import headrace
from headrace.errors import UnsupportedError
from headrace.text.templates.messages import parse_messages

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


def shown_messages(api: CApi, messages: object) -> str:
    """What a template of the library's sees of them, in JSON."""
    templates, text = ctypes.c_void_p(), ctypes.POINTER(Text)()
    api.check(api.chat_templates_load(os.fsencode(MODEL), ctypes.byref(templates)))
    options = ChatOptions(ctypes.sizeof(ChatOptions), None, b"{{ messages | tojson }}")
    try:
        api.check(
            api.chat_render(templates, json.dumps(messages).encode(), options, ctypes.byref(text))
        )
        return str(text.contents.data.decode())
    finally:
        api.text_release(text)
        api.chat_templates_release(templates)


ARGUMENTS: tuple[Any, ...] = (
    None, "", " \n", "null", '{"a": 1}', '"{\\"a\\": 1}"', '""', '"\\"{}\\""', '{"a": 1', "[1]",
    "3", "true", '{"a": NaN}', "Infinity", '{"a": 1, "a": 2}', "[" * 10_000, "{'a': 1}",
    '{"a": "é\\u00e9\\n"}', {"a": {"b": [1.5, None]}}, [], 7, False,
)  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "a\"\\\n\x00é😀"},
        {"content": None, "role": "user", "name": "x"},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "text", "text": "a\n"}, "b", ""]},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
        {"role": "assistant", "content": "a", "reasoning": "r", "thinking": "t"},
        {"role": "assistant", "content": "a", "thinking": "t", "reasoning_content": None},
        {"role": "assistant", "content": "a", "thinking": "t", "reasoning_content": "c"},
        {"role": "assistant", "content": "a", "reasoning": {"not": "text"}},
        {"role": "assistant", "content": "a", "tool_calls": []},
        {"role": "assistant", "content": "a", "tool_calls": None},
        {"role": "assistant", "tool_calls": [7, {"id": "1"}, {"function": None}, {"function": {}}]},
        *(
            {"role": "assistant", "tool_calls": [
                {"id": "1", "function": {"arguments": given, "name": "f"}, "type": "function"}]}
            for given in ARGUMENTS
        ),
    ],
    ids=lambda message: json.dumps(message)[:60],
)  # fmt: skip
def test_messages_become_the_same_in_cpp_and_in_python(api: CApi, message: dict[str, Any]) -> None:
    """Both have these rules: Python's messages are objects of any kind, those of C++ are JSON."""
    expected = json.dumps(parse_messages([message]), ensure_ascii=False)
    assert shown_messages(api, [message]) == expected


@pytest.mark.parametrize(
    "message",
    [
        7, [], {}, {"role": "user"}, {"role": "", "content": "a"}, {"role": 1, "content": "a"},
        {"role": "user", "content": 3}, {"role": "user", "content": {"type": "text", "text": "a"}},
        {"role": "user", "content": [3]}, {"role": "user", "content": [{}]},
        {"role": "user", "content": [{"type": "text", "text": None}]},
        {"role": "user", "content": [{"type": "smell"}]},
        {"role": "user", "content": [{"type": "image_url"}]},
        {"role": "user", "content": [{"type": "input_audio"}]},
        {"role": "user", "tool_calls": []}, {"role": "assistant", "content": "a", "tool_calls": 3},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_messages_that_neither_takes(api: CApi, message: object) -> None:
    with pytest.raises((ValueError, UnsupportedError)):
        parse_messages([message])
    with pytest.raises(RuntimeError, match=r"messages\[0\]: "):
        shown_messages(api, [message])
