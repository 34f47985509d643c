"""Options that several commands share."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.media import MEDIA_LIMITS, add_media_limits, json_options
from headrace.cli.usage import UsageError

if TYPE_CHECKING:
    from headrace import LLM, GuidedDecodingParams, LoRARequest, SamplingParams

# What says that nobody has named a model.
TOY = (
    "no model was named: the shipped one answers. It is a toy for trying things out, with short "
    "sums and a few facts; name a folder or a hub id for a real one"
)
_MAX_PATH = 4096  # longer ones are no folder's
# What `/set` and the sampling options know, with the type of each.
SAMPLING_FIELDS: dict[str, type] = {
    "max_tokens": int,
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "seed": int,
}
_HELP = {
    "max_tokens": "tokens to generate at most",
    "temperature": "0 always takes the most likely token",
    "top_p": "sample from the likeliest tokens of this total probability",
    "top_k": "sample from this many tokens",
    "min_p": "drop tokens less likely than this share of the likeliest",
    "repetition_penalty": "above 1 discourages what has been said",
    "presence_penalty": "-2 .. 2",
    "frequency_penalty": "-2 .. 2",
    "seed": "makes the answers repeatable",
}


def add_model_option(parser: argparse.ArgumentParser, positional: bool = True) -> None:
    """The model by -m, and by its place on the command line if it has one."""
    text = "folder of the model, or its id on the hub; default: the shipped model"
    if positional:
        parser.add_argument("model", nargs="?", help=text)
        parser.add_argument("-m", "--model", dest="named_model", metavar="MODEL", help=text)
    else:
        parser.add_argument("-m", "--model", help=text)


def _add_several_devices(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tensor-parallel-size",
        type=int,
        metavar="N",
        help="devices that compute the model together: GPUs, or groups of CPU threads",
    )
    group.add_argument(
        "--enable-expert-parallel",
        action="store_true",
        default=None,
        help="each of them has some of a model's experts, not a part of each",
    )
    group.add_argument(
        "--data-parallel-size",
        type=int,
        metavar="N",
        help="replicas of the model, each on devices of its own",
    )


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument("--tokenizer", help="folder of another tokenizer")
    group.add_argument("--device", help="auto, cpu, cpu_numa, cuda or cuda:N")
    group.add_argument("--dtype", help="auto, float32, bfloat16 or float16")
    group.add_argument("--quantization", help="wint8 or wint4, on a GPU also fp8 or block_wise_fp8")
    group.add_argument(
        "--kv-cache-dtype", help="auto, float32, bfloat16, float16, int8, fp8 or uint4"
    )
    group.add_argument("--max-model-len", type=int, help="prompt and output together, in tokens")
    group.add_argument("--max-num-seqs", type=int, help="sequences that run at once")
    group.add_argument("--max-num-batched-tokens", type=int, help="tokens computed in one step")
    group.add_argument("--block-size", type=int, help="tokens per KV block")
    group.add_argument(
        "--num-kv-blocks",
        "--num-gpu-blocks-override",
        type=int,
        dest="num_gpu_blocks_override",
        metavar="N",
        help="KV blocks",
    )
    group.add_argument("--kv-cache-bytes", type=int, metavar="N", help="memory for the KV cache")
    group.add_argument(
        "--gpu-memory-utilization",
        type=float,
        metavar="SHARE",
        help="of the free memory, also of a machine without a GPU; default 0.9",
    )
    group.add_argument("--threads", type=int, dest="num_threads", help="CPU threads")
    _add_several_devices(group)
    group.add_argument(
        "--packed-weights", help="packed file to load (see headrace pack), or auto: the cache's"
    )
    group.add_argument(
        "--packed-copy", action="store_true", default=None, help="copy it instead of mapping it"
    )
    group.add_argument("--speculative-config", help='JSON, such as {"method": "ngram"}')
    group.add_argument(
        "--swap-space", type=float, help="GiB of main memory for what the prefix cache gives up"
    )
    group.add_argument("--no-prefix-caching", action="store_true", help="recompute every prompt")
    group.add_argument("--chat-template", help="a template, or the path of one")
    add_media_limits(parser)
    group.add_argument("--debug", action="store_true", help="show tracebacks")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling (default: the model's own values)")
    for name, kind in SAMPLING_FIELDS.items():
        group.add_argument("--" + name.replace("_", "-"), type=kind, help=_HELP[name])
    group.add_argument("--stop", action="append", help="end before this text; repeatable")
    group.add_argument("--ignore-eos", action="store_true", help="go on after end-of-sequence")


def add_guiding_options(parser: argparse.ArgumentParser) -> None:
    """What the output must look like, and the adapter that writes it."""
    group = parser.add_argument_group("guided decoding")
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--json-schema", metavar="SCHEMA", help="answer with JSON of this schema: JSON, or a file"
    )
    one.add_argument("--regex", help="answer with a text that this regular expression matches")
    group = parser.add_argument_group("adapter")
    group.add_argument("--lora", metavar="FOLDER", help="answer with this PEFT adapter")
    group.add_argument(
        "--max-lora-rank", type=int, metavar="N", help="default: the rank of the adapter"
    )


def guided_decoding(args: argparse.Namespace) -> GuidedDecodingParams | None:
    """Raises UsageError for a schema that can't be read."""
    from headrace import GuidedDecodingParams

    if args.regex is not None:
        return GuidedDecodingParams(regex=args.regex)
    if args.json_schema is None:
        return None
    text = args.json_schema
    try:
        if not text.lstrip().startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
        return GuidedDecodingParams(json=json.loads(text))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--json-schema is neither JSON nor a file of JSON: {error}") from error


def lora_request(args: argparse.Namespace) -> LoRARequest | None:
    """The adapter that the options name."""
    from headrace import LoRARequest

    if args.lora is None:
        return None
    folder = Path(args.lora).expanduser()
    if not folder.is_dir():
        raise UsageError(f"--lora: there is no folder {args.lora}")
    return LoRARequest(folder.resolve().name or "adapter", 1, str(folder))


def lora_options(args: argparse.Namespace) -> dict[str, Any]:
    """LLM's arguments for the adapter that the options name."""
    if args.lora is None:
        return {}
    rank = args.max_lora_rank or adapter_rank(Path(args.lora).expanduser())
    return {"enable_lora": True, **({} if rank is None else {"max_lora_rank": rank})}


def adapter_rank(folder: Path) -> int | None:
    """None if its configuration doesn't say; loading the adapter then tells what is wrong."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        ranks = [config["r"], *(config.get("rank_pattern") or {}).values()]
        return int(max(ranks))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def model_path(args: argparse.Namespace) -> str:
    """The model asked for, else the shipped one. Raises UsageError."""
    from headrace import shipped_model

    named = getattr(args, "named_model", None)
    if named is not None and args.model is not None:
        raise UsageError(f"the model is given twice: {args.model} and -m {named}")
    model = args.model if named is None else named
    if model == "":
        raise UsageError("the path of the model is empty")
    return model or shipped_model()


def tell_of_toy(args: argparse.Namespace) -> None:
    """To a person who may take the shipped model for a real one."""
    if args.model is None and getattr(args, "named_model", None) is None and sys.stderr.isatty():
        print(f"headrace: {TOY}", file=sys.stderr)


def refuse_folder(texts: Sequence[str]) -> None:
    """For commands whose words are texts: a folder as the first is a model meant. Raises
    UsageError."""
    if texts and len(texts[0]) < _MAX_PATH and os.path.isdir(os.path.expanduser(texts[0])):
        raise UsageError(f"{texts[0]} is a folder, not a text: name the model by -m {texts[0]}")


def load_model(args: argparse.Namespace, **more: Any) -> LLM:
    """The LLM the options describe. Raises UsageError for options it can't have."""
    from headrace.llm import LLM

    return LLM(model_path(args), **engine_arguments(args, **more))


def engine_arguments(args: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """LLM's keywords that the options describe. Raises UsageError for options it can't have."""
    from headrace.options.engine_args import EngineArgs

    names = (
        "tokenizer",
        "device",
        "dtype",
        "quantization",
        "kv_cache_dtype",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "num_gpu_blocks_override",
        "kv_cache_bytes",
        "gpu_memory_utilization",
        "num_threads",
        "tensor_parallel_size",
        "enable_expert_parallel",
        "data_parallel_size",
        "swap_space",
        "packed_weights",
        "packed_copy",
        "speculative_config",
        "chat_template",
        *MEDIA_LIMITS,
    )
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    given.update(json_options(args))
    given.update({name: value for name, value in more.items() if name not in given})
    if args.no_prefix_caching:
        given["enable_prefix_caching"] = False
    own = {k: v for k, v in given.items() if k not in ("tokenizer", "chat_template")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            EngineArgs.from_kwargs(own)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return given


def sampling_params(args: argparse.Namespace, **more: Any) -> SamplingParams:
    """The SamplingParams the options describe. Raises UsageError for values out of range."""
    from headrace import SamplingParams

    given = {
        name: getattr(args, name) for name in SAMPLING_FIELDS if getattr(args, name) is not None
    }
    try:
        return SamplingParams(
            stop=args.stop,
            ignore_eos=args.ignore_eos,
            guided_decoding=guided_decoding(args),
            **given,
            **more,
        )
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
