"""Every accepted parameter of every public call does something, warns, or raises by its name.

The tables must be complete: a parameter that is added has to say what becomes of it. Engine
arguments have their tables in test_engine_args.py."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from headrace import (
    LLM,
    GenerationConfig,
    GuidedDecodingParams,
    LoRARequest,
    SamplingParams,
    shipped_model,
)
from headrace import Engine as NativeEngine
from headrace.allspark import (
    AsCacheMode,
    AsEvictionStrategy,
    AsException,
    AsMHAPrefill,
    AsModelConfig,
    AsSchedulingStrategy,
    Engine,
    HuggingFaceModel,
)
from headrace.allspark.loading.install_options import plan_installation
from headrace.allspark.serving.generation_fields import (
    GenerationFields,
    Refusal,
    read_fields,
    verify,
)
from headrace.allspark.serving.sampling import sampling_values
from headrace.llm.requests.constraints import Constraints
from headrace.options.engine_args import EngineArgs
from headrace.text.callable_tokenizer import CallableTokenizer
from headrace.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}
ADAPTER = LoRARequest("a", 1, "folder")


def names_of(call: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(call).parameters) - {"self", "cls", "kwargs"}


# SamplingParams: what the engine is told, or the outputs, are different; or it warns.
FIELDS: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.5,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.5,
    "seed": 5,
    "stop_token_ids": [5],
    "max_tokens": 5,
    "min_tokens": 5,
    "logprobs": 2,
    "prompt_logprobs": 2,
    "temp_scaled_logprobs": True,
    "top_p_normalized_logprobs": True,
    "bad_words": ["x"],
    "bad_words_token_ids": [5],
    "logits_processors_args": {"logit_bias": {5: 1.0}},
    "ignore_eos": True,
}
IN_PYTHON: dict[str, Any] = {  # told by the outputs of "one two"
    "n": 2,
    "stop": "two",
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "response_max_tokens": 1,
    "guided_decoding": GuidedDecodingParams(regex="a"),
    "allowed_token_ids": [5],
    "truncate_prompt_tokens": 1,
}
WARNING: dict[str, Any] = {
    "best_of": 3,
    "stop_seqs_len": 3,
}
OTHER_FILES = {
    "reasoning_max_tokens",  # test_thinking.py
    "output_kind",  # test_output_kinds.py
}


def test_the_table_of_sampling_params_is_complete() -> None:
    assert {*FIELDS, *IN_PYTHON, *WARNING, *OTHER_FILES} == {
        item.name for item in fields(SamplingParams)
    }


@pytest.mark.parametrize(("name", "value"), FIELDS.items())
def test_fields_reach_the_engine(make_llm: Callable[..., LLM], name: str, value: Any) -> None:
    planner = make_llm(enable_logprob=True)._planner

    def told(params: SamplingParams) -> str:
        return repr(planner.plan(params, 10, ()))

    assert told(SamplingParams(**{"seed": 1, name: value})) != told(SamplingParams(seed=1))


@pytest.mark.parametrize(("name", "value"), IN_PYTHON.items())
def test_fields_change_the_outputs(llm: LLM, name: str, value: Any) -> None:
    base = {"stop": "two"} if name == "include_stop_str_in_output" else {}

    def shown(**values: Any) -> list[Any]:
        if name in ("guided_decoding", "allowed_token_ids"):
            return [Constraints(llm._planner).of(SamplingParams(**values))]
        prompt = "<s>one two" if name == "skip_special_tokens" else "one two"
        outputs = llm.generate(prompt, SamplingParams(seed=1, **base, **values), use_tqdm=False)
        return [output["text"] for output in outputs]

    assert shown(**{name: value}) != shown()


@pytest.mark.parametrize(("name", "value"), WARNING.items())
def test_fields_without_effect_warn(name: str, value: Any) -> None:
    with pytest.warns(UserWarning, match=f"{name}=3 has no effect"):
        SamplingParams(**{name: value})


# Calls of LLM: a way to call it, and what is to be seen.
def texts(outputs: Any) -> list[str]:
    return [output["text"] for output in outputs]


def streams(outputs: Any) -> bool:
    """Whether it is an iterator, rather than a list, of lists with an output each."""
    return not isinstance(outputs, list) and all(len(step) == 1 for step in outputs)


GENERATE: dict[str, Callable[[LLM], Any]] = {
    "prompts": lambda llm: texts(llm.generate(prompts=["a", "b"], use_tqdm=False)),
    "sampling_params": lambda llm: texts(
        llm.generate("abc", sampling_params=SamplingParams(max_tokens=1), use_tqdm=False)
    ),
    "use_tqdm": lambda llm: len(llm.generate("abc", use_tqdm=True)),
    "stream": lambda llm: streams(llm.generate("abc", use_tqdm=False, stream=True)),
    "lora_request": lambda llm: llm.generate("abc", use_tqdm=False, lora_request=ADAPTER),
}
CHAT: dict[str, Callable[[LLM], Any]] = {
    "messages": lambda llm: len(llm.chat(messages=[HI, HI], use_tqdm=False)),
    "sampling_params": lambda llm: texts(
        llm.chat(HI, sampling_params=SamplingParams(max_tokens=1), use_tqdm=False)
    ),
    "use_tqdm": lambda llm: len(llm.chat(HI, use_tqdm=True)),
    "chat_template_kwargs": lambda llm: (
        llm.chat(HI, use_tqdm=False, chat_template_kwargs={"add_generation_prompt": False})[
            0
        ].prompt
    ),
    "chat_template": lambda llm: llm.chat(HI, use_tqdm=False, chat_template="{{ 1 }}")[0].prompt,
    "tools": lambda llm: (
        llm.chat(HI, use_tqdm=False, tools=TOOL, chat_template="{{ tools | length }}")[0].prompt
    ),
    "tool_choice": lambda llm: (
        llm.chat(HI, use_tqdm=False, tools=TOOL, tool_choice="none", chat_template="{{ tools }}")[
            0
        ].prompt
    ),
    "stream": lambda llm: streams(llm.chat(HI, use_tqdm=False, stream=True)),
    "lora_request": lambda llm: llm.chat(HI, use_tqdm=False, lora_request=ADAPTER),
    # Of vision models: media/test_media_llm.py.
    "mm_processor_kwargs": lambda llm: llm.chat(HI, mm_processor_kwargs={"fps": 1}),
    "add_generation_prompt": lambda llm: (
        llm.chat(HI, use_tqdm=False, add_generation_prompt=False)[0].prompt
    ),
    "continue_final_message": lambda llm: (
        llm.chat(
            [*HI, {"role": "assistant", "content": "I am"}],
            use_tqdm=False,
            continue_final_message=True,
        )[0].prompt
    ),
}
SEEN = {
    ("generate", "prompts"): ["a", "b"],
    ("generate", "sampling_params"): ["a"],
    ("generate", "use_tqdm"): 1,
    ("generate", "stream"): True,
    ("chat", "messages"): 2,
    ("chat", "sampling_params"): [""],  # its first token is special
    ("chat", "use_tqdm"): 1,
    ("chat", "chat_template_kwargs"): "<s>User: hi\n",
    ("chat", "add_generation_prompt"): "<s>User: hi\n",
    ("chat", "continue_final_message"): "<s>User: hi\nAssistant: I am",
    ("chat", "chat_template"): "1",
    ("chat", "tools"): "1",
    ("chat", "tool_choice"): "None",
    ("chat", "stream"): True,
}


@pytest.mark.parametrize(("call", "table"), [(LLM.generate, GENERATE), (LLM.chat, CHAT)])
def test_the_tables_of_calls_are_complete(call: Any, table: dict[str, Any]) -> None:
    assert names_of(call) == set(table)


@pytest.mark.parametrize(("call", "name"), SEEN)
def test_parameters_of_calls_work(
    llm: LLM, call: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = GENERATE if call == "generate" else CHAT
    assert table[name](llm) == SEEN[call, name]
    assert ("Prompts:" in capsys.readouterr().err) == (name == "use_tqdm")


@pytest.mark.parametrize("call", [GENERATE, CHAT])
def test_adapters_that_are_not_enabled_are_refused(llm: LLM, call: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lora_request needs"):
        call["lora_request"](llm)


def test_processor_kwargs_are_refused_by_a_text_model(llm: LLM) -> None:
    with pytest.raises(ValueError, match="mm_processor_kwargs: this model reads text only"):
        CHAT["mm_processor_kwargs"](llm)


def test_an_llm_takes_its_own_arguments_and_engine_args() -> None:
    own = {"model", "revision", "tokenizer", "enable_logprob", "chat_template"}
    known = {item.name for item in fields(EngineArgs)}
    assert own <= names_of(LLM.__init__) <= own | known
    with pytest.raises(TypeError, match="unexpected keyword argument 'modle'"):
        LLM("folder", modle="x")  # type: ignore[call-arg, unused-ignore]


# Keys of a generation config.
KEYS: dict[str, Any] = {
    "do_sample": False,
    "early_stopping": False,
    "stop_words_ids": [[5]],
    "eos_token_id": 7,
    "seed": 5,
    "bad_words_ids": [[5]],
    "temperature": 0.5,
    "top_k": 5,
    "top_p": 0.5,
    "repetition_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "suppress_repetition_in_generation": True,
    "no_repeat_ngram_size": 3,
    "logprobs": True,
    "top_logprobs": 3,
    "min_length": 15,
    "max_length": 30,
}
REFUSED_KEYS: dict[str, Any] = {
    "num_beams": 2,
    "num_return_sequences": 2,
    "enable_tensors_from_model_inference": True,
}
LOGGED_KEYS: dict[str, Any] = {"length_penalty": 2.0}
# Told by test_allspark_adapters.py, test_allspark_guided.py (which needs no vocab),
# test_allspark_media.py and, for uuid, test_allspark_requests.py.
ELSEWHERE = {"lora_name", "response_format", "vocab", "vocab_type", "mm_info", "uuid"}


def test_the_table_of_keys_is_complete() -> None:
    names = {item.name for item in fields(GenerationFields)}
    assert {*KEYS, *REFUSED_KEYS, *LOGGED_KEYS, *ELSEWHERE} == names


@pytest.mark.parametrize(("name", "value"), KEYS.items())
def test_keys_reach_the_engine(name: str, value: Any) -> None:
    def told(**values: Any) -> dict[str, Any]:
        both = {"logprobs": True} if name == "top_logprobs" else {}
        return sampling_values(read_fields({"max_length": 20, **both, **values}), 10, [2], 100)

    assert told(**{name: value}) != told()


@pytest.mark.parametrize(("name", "value"), REFUSED_KEYS.items())
def test_keys_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(Refusal, match=name):
        verify(read_fields({name: value}), [[1]], 100, 8)


@pytest.mark.parametrize(("name", "value"), LOGGED_KEYS.items())
def test_keys_without_effect_are_logged(
    name: str, value: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.allspark.serving.generation_fields._warned", set())
    read_fields({name: value})
    assert f"{name} has no effect" in caplog.text


# Fields of AsModelConfig.
CONFIG: dict[str, Any] = {
    "compute_unit": "CPU:0,1",
    "engine_max_length": 64,
    "engine_max_batch": 4,
    "engine_max_prefill_length": 16,
    "num_threads": 1,
    "cache_span_size": 32,
    "enable_prefix_cache": False,
    "cache_mode": AsCacheMode.AsCacheQuantI8,
    "eviction_strategy": AsEvictionStrategy.MaxLength,
    "lora_max_rank": 8,
    "lora_max_num": 2,
    "data_type": "float32",
    "quantization": {"quant_method": "instant_quant", "weight_format": "int8"},
    "packed_weights": "auto",
}
LOGGED_CONFIG: dict[str, Any] = {
    "swap_threshold": 1,
    "text_graph": True,
    "matmul_precision": "medium",
    "lora_names": ["a"],
    "cache_span_num_init": 1,
    "cache_span_num_grow": 1,
    "prefix_cache_ttl": 5,
    "prefill_mode": AsMHAPrefill.AsPrefillFlashV2,
    "scheduling_strategy": AsSchedulingStrategy.Balance,
    "enable_sparsity_matmul": True,
}


def planned(**values: Any) -> dict[str, Any]:
    config = AsModelConfig("m", shipped_model(), shipped_model(), "CPU:0", 128, 8)
    for name, value in values.items():
        setattr(config, name, value)
    return plan_installation(config).options


def test_the_table_of_model_configs_is_complete() -> None:
    names = {item.name for item in fields(AsModelConfig)}
    assert {*CONFIG, *LOGGED_CONFIG, "model_name", "model_path", "weights_path"} == names


@pytest.mark.parametrize(("name", "value"), CONFIG.items())
def test_configs_reach_the_engine(name: str, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert planned(**{name: value}) != planned()
    assert "no effect" not in caplog.text


@pytest.mark.parametrize(("name", "value"), LOGGED_CONFIG.items())
def test_configs_without_effect_are_logged(
    name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert planned(**{name: value}) == planned()
    assert caplog.text.count(f"{name}={value!r} has no effect") == 1


@pytest.mark.parametrize("name", ["model_name", "model_path", "weights_path"])
def test_configs_that_are_empty_are_refused(name: str) -> None:
    with pytest.raises(AsException, match=f"{name} is empty"):
        planned(**{name: ""})


# Parameters of loaders that ask for what has no effect.
LOADER: dict[str, tuple[str, dict[str, Any]]] = {
    "load_format": ("load_model", {"load_format": "pt"}),
    "further": ("load_model", {"low_cpu_mem_usage": True}),
    "weight_only_quant": (
        "serialize_to_memory",
        {
            "enable_quant": True,
            "weight_only_quant": True,
            "customized_quant_config": CONFIG["quantization"],
        },
    ),
    "multinode_mode": ("serialize_to_memory", {"multinode_mode": False}),
}


@pytest.mark.parametrize("name", LOADER)
def test_what_loaders_cannot_do_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    method, values = LOADER[name]
    model = HuggingFaceModel(shipped_model(), "tiny").load_model()
    assert "no effect" not in caplog.text
    first = () if method == "load_model" else (Engine(),)
    getattr(model, method)(*first, **values)
    assert "no effect" in caplog.text
    assert next(iter(values)) in caplog.text or name in caplog.text


def test_parameters_of_loaders_work(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    model = HuggingFaceModel(
        shipped_model(), "tiny", user_set_data_type="float32", trust_remote_code=True
    )
    model.load_model(override_data_type="bfloat16", direct_load=True, load_format="safetensors")
    assert model.data_type == "bfloat16"
    settings = CONFIG["quantization"]
    assert model.init_quantization(customized_quant_config=settings).quant_setting is not None
    assert model.init_quantization(enable=False).quant_setting is None
    assert model.init_tokenizer(padding_side="left").get_tokenizer().padding_side == "left"
    assert not caplog.text


# Calls of a tokenizer.
CALL: dict[str, Any] = {
    "add_special_tokens": False,
    "padding": "max_length",
    "truncation": False,
    "max_length": 2,
    "return_tensors": "np",
    "return_attention_mask": False,
    "pad_to_multiple_of": 16,
    "padding_side": "left",
}
BESIDE: dict[str, dict[str, Any]] = {
    "padding": {"max_length": 9},
    "truncation": {"max_length": 2},
    "pad_to_multiple_of": {"padding": True},
    "padding_side": {"padding": "max_length", "max_length": 9},
}


def test_parameters_of_a_tokenizers_call(toy_folder: Any) -> None:
    assert names_of(CallableTokenizer.__call__) == {"text", *CALL}
    own = CallableTokenizer(Tokenizer.from_pretrained(toy_folder))
    own.pad_token = own.eos_token
    own.padding_side = "right"
    special = own._tokenizer.encode("abc", True) != own._tokenizer.encode("abc")
    for name, value in CALL.items():
        beside = BESIDE.get(name, {})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            changed = repr(own("abc", **beside, **{name: value})) != repr(own("abc", **beside))
        assert changed or (name == "add_special_tokens" and not special), name


# Engine.submit: what the engine is told.
SUBMIT: dict[str, tuple[Any, str]] = {
    "config": (GenerationConfig(top_k=5), "sampling"),
    "request_id": ("mine", "request_id"),
    "priority": (3, "priority"),
    "timeout": (5.0, "timeout"),
    "guided": (GuidedDecodingParams(regex="a"), "constraint"),
    "lora": ("adapter", "lora_name"),
}


@pytest.fixture
def told(fake_engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    real = fake_engine.Engine.submit

    def submit(engine: Any, model: str, **how: Any) -> Any:
        seen.append({**how, "model": model})
        return real(engine, model, prompt_token_ids=[5], sampling=how["sampling"])

    monkeypatch.setattr(fake_engine.Engine, "submit", submit)
    return seen


def test_parameters_of_a_submission(told: list[dict[str, Any]], toy_folder: Any) -> None:
    # What `detached` does: test_native_owner.py; `stop`: test_native_text.py; `output`:
    # test_embeddings.py; `media`: media/test_media_llm.py; `continues`: test_continuation.py.
    names = {
        "model",
        "prompt",
        "detokenize",
        "detached",
        "output",
        "stop",
        "media",
        "continues",
        *SUBMIT,
    }
    assert names_of(NativeEngine.submit) == names
    with NativeEngine() as engine:
        engine.install_model("m", str(toy_folder))
        engine.start_model("m")
        engine.submit("m", [5, 6])
        for name, (value, _) in SUBMIT.items():
            engine.submit("m", [5, 6], **{name: value})
        assert engine.submit("m", [5, 6], detokenize=True).results().get().text
        assert engine.submit("m", "text", detokenize=False).results().get().text == ""
    plain, *others = told[: len(SUBMIT) + 1]
    assert (plain["model"], plain["prompt_token_ids"]) == ("m", [5, 6])
    for how, (name, (_, key)) in zip(others, SUBMIT.items(), strict=True):
        assert {k for k in how if repr(how[k]) != repr(plain[k])} == {key}, name
