"""Scripts in the shape of vLLM's basic offline examples run on the shipped model when "vllm" in
their imports becomes "headrace"."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from embedding_folders import add_modules
from vllm_script import run_script

from headrace import (
    LLM,
    BeamSearchParams,
    EngineArgs,
    LLMEngine,
    SamplingParams,
    shipped_model,
)
from headrace.compat.vllm.distributed import cleanup_dist_env_and_memory
from headrace.errors import UnsupportedError
from headrace.options.vllm_args import VLLM_NAMES
from headrace.options.vllm_names import LLMKeywords

BASIC = """
from vllm import LLM, SamplingParams

questions = ["What is 2 + 3?", "What is the capital of France?"]
prompts = [f"User: {question}\\nAssistant: " for question in questions]
sampling_params = SamplingParams(temperature=0, top_p=0.95, max_tokens=16)

def main():
    llm = LLM(model="MODEL", enforce_eager=True, trust_remote_code=True, dtype="half",
              disable_log_stats=True)
    outputs = llm.generate(prompts, sampling_params)
    texts = []
    for output in outputs:
        prompt = output.prompt
        generated_text = output.outputs[0].text
        texts.append(f"{prompt!r} {generated_text!r}")
    return texts

texts = main()
assert "5" in texts[0] and "Paris" in texts[1], texts
"""
GENERATE = """
from vllm import LLM, EngineArgs
from vllm.utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
engine_group = parser.add_argument_group("Engine arguments")
EngineArgs.add_cli_args(engine_group)
engine_group.set_defaults(model="MODEL")
sampling_group = parser.add_argument_group("Sampling parameters")
for option, kind in (("--max-tokens", int), ("--temperature", float), ("--top-p", float)):
    sampling_group.add_argument(option, type=kind)
args = vars(parser.parse_args())
own = {name: args.pop(name) for name in ("max_tokens", "temperature", "top_p")}
llm = LLM(**args)
sampling_params = llm.get_default_sampling_params()
for name, value in own.items():
    if value is not None:
        setattr(sampling_params, name, value)
outputs = llm.generate(["Hello, my name is", "The capital of France is"], sampling_params)
assert [len(output.outputs[0].token_ids) <= 16 for output in outputs] == [True, True]
"""
CHAT = """
from vllm import LLM, EngineArgs
from vllm.outputs import RequestOutput
from vllm.utils.argparse_utils import FlexibleArgumentParser

def create_parser():
    parser = FlexibleArgumentParser()
    EngineArgs.add_cli_args(parser)
    parser.set_defaults(model="MODEL")
    sampling_group = parser.add_argument_group("Sampling parameters")
    sampling_group.add_argument("--max-tokens", type=int)
    sampling_group.add_argument("--temperature", type=float)
    parser.add_argument("--chat-template-path", type=str)
    return parser

args = vars(create_parser().parse_args())
max_tokens = args.pop("max_tokens")
temperature = args.pop("temperature")
chat_template_path = args.pop("chat_template_path")
llm = LLM(**args)
sampling_params = llm.get_default_sampling_params()
if max_tokens is not None:
    sampling_params.max_tokens = max_tokens
if temperature is not None:
    sampling_params.temperature = temperature
conversation = [
    {"role": "system", "content": "You are a helpful assistant"},
    {"role": "user", "content": "What is the capital of France?"},
]
outputs = llm.chat(conversation, sampling_params, use_tqdm=False)
assert "Paris" in outputs[0].outputs[0].text
outputs = llm.chat([conversation for _ in range(3)], sampling_params, use_tqdm=True)
assert len(outputs) == 3
opened = [*conversation, {"role": "assistant", "content": "The capital of"}]
outputs = llm.chat(
    opened, sampling_params, add_generation_prompt=False, continue_final_message=True
)
assert outputs[0].outputs[0].text.startswith(" France")
"""
EMBED = """
from argparse import Namespace
from vllm import LLM, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.utils.print_utils import print_embeddings

parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
parser.set_defaults(model="MODEL", runner="pooling", enforce_eager=True)
args: Namespace = parser.parse_args(["--max_model_len", "512"])
prompts = ["Hello, my name is", "The future of AI is"]
model = LLM(**vars(args))
outputs = model.embed(prompts)
for prompt, output in zip(prompts, outputs):
    embeds = output.outputs.embedding
    assert len(embeds) == model.model_info.hidden_size
    print_embeddings(embeds)
for output, other in zip(model.encode(prompts, pooling_task="embed"), outputs):
    assert output.outputs.data == other.outputs.embedding
"""
SCORE = """
from vllm import LLM

model = LLM(model="MODEL", runner="pooling", enforce_eager=True)
text_1 = "What is the capital of France?"
texts_2 = ["The capital of Brazil is Brasilia.", "The capital of France is Paris."]
outputs = model.score(text_1, texts_2)
for text_2, output in zip(texts_2, outputs):
    score = output.outputs.score
    assert -1 <= score <= 1
"""
STRUCTURED = """
import json
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

MAX_TOKENS = 30
choice = StructuredOutputsParams(choice=["Positive", "Negative"])
regex = StructuredOutputsParams(regex=r"[a-z]{2}@[a-z]{2}\\.com\\n")
schema = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"],
          "additionalProperties": False}
as_json = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
grammar = StructuredOutputsParams(grammar='root ::= "SELECT " ("a" | "b")')
llm = LLM(model="MODEL", max_model_len=100)

def generate_output(prompt, structured, **more):
    params = SamplingParams(structured_outputs=structured, max_tokens=MAX_TOKENS, **more)
    return llm.generate(prompts=prompt, sampling_params=params)[0].outputs[0].text

assert generate_output("Classify: vLLM is wonderful!", choice) in ("Positive", "Negative")
assert "@" in generate_output("An email address", regex, stop=["\\n"])
text = generate_output("A year", as_json)
assert not text.endswith("}") or " " not in text and "year" in json.loads(text), text
assert generate_output("SQL", grammar).startswith("SELECT ")
"""
PREFIX = """
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

prefix = "You are an expert school principal, skilled in effectively managing faculty. " * 3
prompts = ["Hello, my name is", "The president of the United States is"]
generating_prompts = [prefix + prompt for prompt in prompts]
sampling_params = SamplingParams(temperature=0.0, max_tokens=8)
regular_llm = LLM(model="MODEL", gpu_memory_utilization=0.4, block_size=16)
outputs = regular_llm.generate(generating_prompts, sampling_params)
regular = [output.outputs[0].text for output in outputs]
outputs = regular_llm.generate(generating_prompts, sampling_params)
assert [output.outputs[0].text for output in outputs] == regular
assert all(output.num_cached_tokens for output in outputs)
assert regular_llm.reset_prefix_cache()
assert not regular_llm.generate(generating_prompts[:1], sampling_params)[0].num_cached_tokens
del regular_llm
cleanup_dist_env_and_memory()
llm = LLM(model="MODEL", enable_prefix_caching=False, gpu_memory_utilization=0.4)
outputs = llm.generate(generating_prompts, sampling_params=sampling_params)
assert [output.outputs[0].text for output in outputs] == regular
"""
ENGINE = """
from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
from vllm.utils.argparse_utils import FlexibleArgumentParser

test_prompts = [
    ("A robot may not injure a human being",
     SamplingParams(temperature=0.0, logprobs=1, prompt_logprobs=1, max_tokens=8)),
    ("To be or not to be,",
     SamplingParams(temperature=0.8, top_k=5, presence_penalty=0.2, max_tokens=8)),
    ("What is the meaning of life?",
     SamplingParams(n=2, temperature=0.8, top_p=0.95, frequency_penalty=0.1, max_tokens=8)),
]
parser = FlexibleArgumentParser(description="Demo on using the LLMEngine class directly")
parser = EngineArgs.add_cli_args(parser)
parser.set_defaults(model="MODEL")
parser.add_argument("--max-tokens"), parser.add_argument("--temperature")
engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(parser.parse_args()))
request_id, step_id, finished = 0, 0, {}
while test_prompts or engine.has_unfinished_requests():
    if test_prompts:
        prompt, sampling_params = test_prompts.pop(0)
        engine.add_request(str(request_id), prompt, sampling_params)
        request_id += 1
    if step_id == 3:
        engine.reset_prefix_cache(reset_running_requests=True)
    request_outputs: list[RequestOutput] = engine.step()
    for request_output in request_outputs:
        if request_output.finished:
            finished[request_output.request_id] = request_output
    step_id += 1
assert sorted(finished) == ["0", "1", "2"]
assert [len(finished[name].outputs) for name in "012"] == [1, 1, 2]
assert finished["0"].prompt_logprobs and len(finished["0"].outputs[0].logprobs) == 8
alone = engine.llm.generate("A robot may not injure a human being",
                            SamplingParams(temperature=0, max_tokens=8))
assert finished["0"].outputs[0].text == alone[0].outputs[0].text
engine.add_request("3", "To be", SamplingParams(max_tokens=400, ignore_eos=True))
try:
    engine.add_request("3", "or not", SamplingParams())
    raise AssertionError("an id that is in use was taken")
except ValueError as error:
    assert "'3' is in use" in str(error)
assert engine.get_num_unfinished_requests() == 1
engine.abort_request(["3", "4"])
assert engine.step() == [] and not engine.has_unfinished_requests()
llm = engine.llm
"""
REPRODUCIBILITY = """
import os
import random

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
from vllm import LLM, SamplingParams

prompts = ["Hello, my name is", "The future of AI is"]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=8)
texts = []
for _ in range(2):
    llm = LLM(model="MODEL", seed=42)
    outputs = llm.generate(prompts, sampling_params)
    texts.append([output.outputs[0].text for output in outputs])
assert texts[0] == texts[1]
"""
SAMPLING = """
from vllm import LLM, SamplingParams, TextPrompt, TokensPrompt
from vllm.inputs import TokensPrompt as Same
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput

llm = LLM("MODEL", load_format="auto", tokenizer_mode="auto", enable_logprob=True)
params = SamplingParams(n=3, seed=1, temperature=1.0, max_tokens=5, logprobs=2)
again = params.clone()
assert again == params and again is not params
ids = llm.get_tokenizer().encode("Hello, my name is")
outputs = llm.generate([TokensPrompt(prompt_token_ids=ids), TextPrompt(prompt="Hello")], params)
assert len(outputs) == 6 and isinstance(outputs[0], RequestOutput)
for output in outputs:
    assert len(output.outputs) == 3
    for place, completion in enumerate(output.outputs):
        assert completion.index == place
        rows = zip(completion.token_ids, completion.logprobs)
        assert abs(completion.cumulative_logprob - sum(row[token][0] for token, row in rows)) < 1e-9
assert outputs[0].outputs[2] is outputs[2].outputs[2]
assert llm.generate("Hello", SamplingParams(max_tokens=1))[0].outputs[0].cumulative_logprob is None
"""
BEAMS = """
from vllm import LLM, SamplingParams
from vllm.sampling_params import BeamSearchParams

llm = LLM(model="MODEL")
params = BeamSearchParams(beam_width=3, max_tokens=12)
prompts = [{"prompt": "User: What is 2 + 3?\\nAssistant: "}, {"prompt_token_ids": [5, 6, 7]}]
outputs = llm.beam_search(prompts, params)
for output in outputs:
    assert len(output.sequences) == 3
    for sequence in output.sequences:
        generated_text = sequence.text
assert outputs[0].sequences[0].text.endswith("5.") or "5" in outputs[0].sequences[0].text
"""
SCRIPTS = {
    "basic": BASIC,
    "generate": GENERATE,
    "chat": CHAT,
    "embed": EMBED,
    "score": SCORE,
    "structured_outputs": STRUCTURED,
    "prefix_caching": PREFIX,
    "llm_engine": ENGINE,
    "reproducibility": REPRODUCIBILITY,
    "sampling": SAMPLING,
    "beam_search": BEAMS,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = Path(shipped_model())
    if name == "score":  # which needs a model for embeddings
        shutil.copytree(model, tmp_path / "model")
        model = tmp_path / "model"
        add_modules(model)
    run_script(name, SCRIPTS[name], model, monkeypatch)


def test_arguments_of_vllms_engine() -> None:
    args = EngineArgs(model=shipped_model(), max_model_len=64, num_threads=1)
    with pytest.raises(TypeError, match="no argument 'stat_logger'"):
        LLMEngine.from_engine_args(args, stat_logger=[])
    with pytest.warns(UserWarning, match="stat_loggers=.* has no effect"):
        engine = LLMEngine.from_engine_args(args, usage_context=None, stat_loggers=["a"])
    with engine.llm:
        engine.add_request("a", "To be", SamplingParams(max_tokens=2, ignore_eos=True))
        with pytest.warns(UserWarning, match="reset_running_requests=True has no effect"):
            engine.reset_prefix_cache(reset_running_requests=True)
        engine.abort_request("a")


def test_no_ray_is_shut_down() -> None:
    with pytest.warns(UserWarning, match="shutdown_ray=True has no effect"):
        cleanup_dist_env_and_memory(shutdown_ray=True)


@pytest.mark.parametrize("name", ["classify", "reward"])
def test_what_is_not_there_is_named(name: str, llm: LLM) -> None:
    with pytest.raises(UnsupportedError, match=f"^{name}: heads"):
        getattr(llm, name)(["Hello"])
    with pytest.raises(UnsupportedError, match="pooling_task='token_classify'"):
        llm.encode("Hello", pooling_task="token_classify")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("enforce_eager", True, "the engine decides"),
        ("trust_remote_code", True, "no code of a checkpoint is ever run"),
        ("disable_log_stats", False, "no statistics"),
        ("tokenizer_mode", "slow", "one kind of tokenizer"),
        ("distributed_executor_backend", "ray", "one process"),
        ("max_cpu_loras", 2, "no adapter is kept"),
        ("enable_log_requests", True, "aren't logged"),
        ("attention_backend", "FLASH_ATTN", "chooses its kernels"),
        ("safetensors_load_strategy", "eager", "weights are mapped"),
        ("quantization", "AWQ", "how it is quantized"),
    ],
)
def test_what_has_no_effect_warns(name: str, value: Any, words: str) -> None:
    with pytest.warns(UserWarning, match=f"^{name}=.* has no effect: .*{words}"):
        EngineArgs.from_kwargs({name: value})
    with pytest.warns(UserWarning, match=f"^{name}=") as told:
        EngineArgs(**{name: value})
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pipeline_parallel_size", 2),
        ("nnodes", 2),
        ("kv_transfer_config", {"kv_role": "kv_both"}),
        ("profiler_config", {"profiler": "torch"}),
        ("structured_outputs_config", {"backend": "xgrammar"}),
        ("enable_sleep_mode", True),
        ("cpu_offload_gb", 4),
        ("hf_overrides", {"rope_theta": 1e6}),
        ("skip_tokenizer_init", True),
        ("load_format", "bitsandbytes"),
        ("runner", "draft"),
        ("task", "classify"),
        ("convert", "reward"),
    ],
)
def test_what_is_missing_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"^{name}="):
        EngineArgs.from_kwargs({name: value})


def test_names_and_values_that_mean_the_same() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        args = EngineArgs.from_kwargs(
            {
                "dtype": "half",
                "kv_cache_dtype": "fp8_e4m3",
                "kv_cache_memory_bytes": 1 << 20,
                "mm_processor_cache_gb": 2,
                "kv_offloading_size": 3.0,
                "max_cpu_loras": None,
                "scheduling_policy": "fcfs",
                "load_format": "dummy",
                "disable_log_stats": True,
                "enforce_eager": False,
                "trust_remote_code": False,
                "pipeline_parallel_size": 1,
                "runner": "pooling",
                "task": "embed",
                "convert": "embed",
                "hf_token": None,
            }
        )
    assert (args.dtype, args.kv_cache_dtype) == ("float16", "fp8")
    assert (args.kv_cache_bytes, args.load_choices) == (1 << 20, "dummy")
    assert (args.max_processor_cache, args.swap_space) == (2, 3.0)
    with pytest.raises(TypeError, match="are the same"):
        EngineArgs.from_kwargs({"kv_cache_memory_bytes": 1, "kv_cache_bytes": 2})
    with pytest.raises(TypeError, match="did you mean 'enforce_eager'"):
        EngineArgs.from_kwargs({"enforce_eagre": True})
    with pytest.raises(TypeError, match=r"EngineArgs\(\) got .*'max_cpu_lora'; did you mean"):
        EngineArgs(**{"max_cpu_lora": 2})  # type: ignore[arg-type]
    assert set(LLMKeywords.__annotations__) >= VLLM_NAMES


def test_misspelt_sampling_parameters_name_the_right_one() -> None:
    wrong: dict[str, Any] = {"temprature": 1}
    with pytest.raises(TypeError, match="'temprature'; did you mean 'temperature'"):
        SamplingParams(**wrong)
    with pytest.raises(AttributeError, match="'top_pp'; did you mean 'top_p'"):
        SamplingParams().top_pp = 1  # type: ignore[attr-defined]
    wrong = {"use_beam_search": True}
    with pytest.raises(TypeError, match=r"'use_beam_search': LLM\.beam_search"):
        SamplingParams(**wrong)
    with pytest.raises(TypeError, match=r"'nonsense'$"):
        SamplingParams(**{"nonsense": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ({"beam_width": 0}, ValueError, "beam_width must be in"),
        ({"beam_width": "4"}, TypeError, "beam_width must be an int"),
        ({"max_tokens": 0}, ValueError, "max_tokens must be in"),
        ({"temperature": -1}, ValueError, "temperature must be in"),
        ({"length_penalty": float("nan")}, ValueError, "length_penalty must be in"),
        ({"ignore_eos": 2}, TypeError, "ignore_eos must be a bool"),
    ],
)
def test_beam_search_params_are_checked(
    values: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 4, **values})
