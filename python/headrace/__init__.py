"""Headrace: fast offline inference for large language models.

    from headrace import LLM, SamplingParams

    llm = LLM("path/to/model")
    outputs = llm.generate(["Once upon a time"], SamplingParams(max_tokens=64))

Importing this package loads nothing else; names are imported when they are first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace._core import HeadraceError
    from headrace._core import __version__ as __version__
    from headrace.compat.engines.async_llm_engine import AsyncLLMEngine
    from headrace.compat.engines.llm_engine import LLMEngine
    from headrace.compat.vllm.engine.arg_utils import AsyncEngineArgs
    from headrace.errors import EngineError
    from headrace.installed_files import get_cmake_dir, get_include, get_library, get_pkgconfig_dir
    from headrace.llm import LLM, AsyncLLM
    from headrace.llm.beam_search import BeamSearchOutput, BeamSearchSequence
    from headrace.llm.outputs import CompletionOutput, RequestMetrics, RequestOutput
    from headrace.llm.pooling.outputs import EmbeddingRequestOutput, ScoringRequestOutput
    from headrace.native import (
        Engine,
        FinishReason,
        GenerationConfig,
        ModelOptions,
        Output,
        Pooling,
        PoolingParams,
        Request,
        RequestStatus,
        ResultQueue,
        Selector,
        SpeculativeOptions,
    )
    from headrace.options.engine_args import EngineArgs
    from headrace.options.lora import LoRARequest
    from headrace.options.prompt_types import TextPrompt, TokensPrompt
    from headrace.options.sampling_params import (
        BeamSearchParams,
        GuidedDecodingParams,
        SamplingParams,
        StructuredOutputsParams,
    )
    from headrace.text.tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLM",
    "AsyncLLMEngine",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "EmbeddingRequestOutput",
    "Engine",
    "EngineArgs",
    "EngineError",
    "FinishReason",
    "GenerationConfig",
    "GuidedDecodingParams",
    "HeadraceError",
    "LLMEngine",
    "LoRARequest",
    "ModelOptions",
    "Output",
    "Pooling",
    "PoolingParams",
    "Request",
    "RequestMetrics",
    "RequestOutput",
    "RequestStatus",
    "ResultQueue",
    "SamplingParams",
    "ScoringRequestOutput",
    "Selector",
    "SpeculativeOptions",
    "StructuredOutputsParams",
    "TextPrompt",
    "Tokenizer",
    "TokensPrompt",
    "get_cmake_dir",
    "get_include",
    "get_library",
    "get_pkgconfig_dir",
    "shipped_model",
    "version",
]


def _check_interpreter() -> None:
    """Raises ImportError in a subinterpreter: threads of the engine could never take its lock."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if module.get_current() != module.get_main():
            raise ImportError(
                "headrace works in the main interpreter alone, and this is a subinterpreter: "
                "import it in a process of its own (multiprocessing, or mod_wsgi's "
                "WSGIApplicationGroup %{GLOBAL})"
            )
        return


_check_interpreter()

# FastDeploy's module paths are there by this name, too, headrace.engine.request and so on, and
# those that vLLM's scripts import from: headrace.sampling_params.
for _engine in ("vllm", "fastdeploy"):
    __path__.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "compat", _engine))

_HOMES = {
    "LLM": "headrace.llm",
    "AsyncLLM": "headrace.llm",
    "LLMEngine": "headrace.compat.engines.llm_engine",
    "AsyncLLMEngine": "headrace.compat.engines.async_llm_engine",
    "AsyncEngineArgs": "headrace.compat.vllm.engine.arg_utils",
    "LoRARequest": "headrace.options.lora",
    "BeamSearchOutput": "headrace.llm.beam_search",
    "BeamSearchSequence": "headrace.llm.beam_search",
    "BeamSearchParams": "headrace.options.sampling_params",
    "SamplingParams": "headrace.options.sampling_params",
    "GuidedDecodingParams": "headrace.options.sampling_params",
    "StructuredOutputsParams": "headrace.options.sampling_params",
    "TextPrompt": "headrace.options.prompt_types",
    "TokensPrompt": "headrace.options.prompt_types",
    "RequestOutput": "headrace.llm.outputs",
    "CompletionOutput": "headrace.llm.outputs",
    "RequestMetrics": "headrace.llm.outputs",
    "EmbeddingRequestOutput": "headrace.llm.pooling.outputs",
    "ScoringRequestOutput": "headrace.llm.pooling.outputs",
    "EngineArgs": "headrace.options.engine_args",
    "EngineError": "headrace.errors",
    "Tokenizer": "headrace.text.tokenizer",
    **dict.fromkeys(
        (
            "Engine",
            "FinishReason",
            "GenerationConfig",
            "ModelOptions",
            "Output",
            "Pooling",
            "PoolingParams",
            "Request",
            "RequestStatus",
            "ResultQueue",
            "Selector",
            "SpeculativeOptions",
        ),
        "headrace.native",
    ),
    "get_cmake_dir": "headrace.installed_files",
    "get_include": "headrace.installed_files",
    "get_library": "headrace.installed_files",
    "get_pkgconfig_dir": "headrace.installed_files",
    "HeadraceError": "headrace._core",
    "__version__": "headrace._core",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def version() -> str:
    """The version of this package, "MAJOR.MINOR.PATCH"."""
    return str(__getattr__("__version__"))


def shipped_model() -> str:
    """The folder of the small model that comes with the package.

    Raises FileNotFoundError if this installation has none.
    """
    package = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(package, "models", "tiny")
    source = os.path.join(package, "..", "..", "examples", "tiny_model", "checkpoint")
    for folder in (installed, os.path.normpath(source)):
        if os.path.isfile(os.path.join(folder, "config.json")):
            return folder
    raise FileNotFoundError(
        "This installation has no shipped model; pass the folder of a model instead"
    )
