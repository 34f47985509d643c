"""Engine: models and requests as DashInfer's scripts use them."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn

from headrace.allspark.core.as_model_config import AsModelConfig
from headrace.allspark.engine_utils import EngineUtils
from headrace.allspark.enums import (
    AsCacheMode,
    AsStatus,
    GenerateRequestStatus,
    RoPEScaleMethod,
    TargetDevice,
)
from headrace.allspark.generation_config import ASGenerationConfigBuilder
from headrace.allspark.loading.huggingface_model import HuggingFaceModel
from headrace.allspark.loading.loader_base import LLM
from headrace.allspark.runtime_config import AsModelRuntimeConfigBuilder
from headrace.allspark.serving.as_engine import AsEngine
from headrace.allspark.serving.engine_stat import AsEngineStat
from headrace.allspark.serving.installed_model import RequestHandle
from headrace.allspark.serving.request_calls import Started
from headrace.allspark.serving.request_stat import RequestStatInfo
from headrace.allspark.serving.results import ResultQueue
from headrace.allspark.serving.token_ids import read_rows
from headrace.quoting import quoted

__all__ = [
    "LLM",
    "ASGenerationConfigBuilder",
    "AsCacheMode",
    "AsEngine",
    "AsEngineStat",
    "AsModelConfig",
    "AsModelRuntimeConfigBuilder",
    "AsStatus",
    "Engine",
    "EngineUtils",
    "Enum",
    "GenerateRequestStatus",
    "RequestStatInfo",
    "RoPEScaleMethod",
    "TargetDevice",
    "os",
]
if importlib.util.find_spec("torch") is not None:  # the original's star import gives these, too
    __all__ += ["Tensor", "torch"]  # noqa: F822 (see __getattr__)

logger = logging.getLogger("headrace")

Builder = ASGenerationConfigBuilder | Mapping[str, Any]
StartedBatch = tuple[AsStatus, list[RequestHandle] | None, list[ResultQueue] | None]


def __getattr__(name: str) -> Any:
    # The original's module has these, too; here they are there if torch is installed.
    if name in ("torch", "Tensor"):
        try:
            import torch  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise AttributeError(f"{name}: torch is not installed, and not needed") from error
        return torch if name == "torch" else torch.Tensor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Engine(AsEngine):
    """Models, installed by name, and the requests to them.

        engine = Engine()
        engine.install_model(config)
        engine.start_model("model")
        status, handle, queue = engine.start_request_text("model", loader, "Hello", builder)

    Any thread may call any method. What each returns is in AsEngine.
    """

    HuggingFaceModel = HuggingFaceModel

    def __init__(self) -> None:
        super().__init__()
        self.engine = EngineUtils()
        self.engine.version = self.get_version_full()
        self.sent_vocab = False

    def __repr__(self) -> str:
        return f"AsEngine: version={self.get_version_full()} "

    def install_model(self, as_model_config_struct: AsModelConfig) -> None:
        """Loads a model under its model_name. Raises AsException, a RuntimeError."""
        self._install(as_model_config_struct)

    def build_model_from_config_struct(self, as_model_config_struct: AsModelConfig) -> None:
        """Deprecated: install_model."""
        self._install(as_model_config_struct)

    def start_request(
        self,
        model_name: str,
        inputs: Mapping[str, Any],
        generate_config: Mapping[str, Any] = {},
    ) -> Started:
        """Queues a request: (status, handle, queue), the last two None unless it succeeded.

        inputs: a dict with "input_ids" of shape [1, length] or [length]: a DLPack capsule or
            anything else that holds integers (token_ids.read_rows).
        generate_config: parameters by name (generation_fields.GenerationFields); not changed.
        """
        return self._start_request(model_name, inputs, generate_config)

    def start_request_ids(
        self,
        model_name: str,
        model: LLM | None,
        input_ids: Any,
        generate_config_builder: Builder,
    ) -> Started:
        """The same for token ids: a list, a tensor, an array. Raises ValueError for anything else.

        model: not used.
        """
        rows = read_rows(input_ids)
        return self._start_request(model_name, {"input_ids": rows}, _built(generate_config_builder))

    def start_request_text(
        self,
        model_name: str,
        model: LLM | None,
        input_str_or_array: str | Sequence[str],
        generate_config_builder: Builder,
    ) -> Started | StartedBatch:
        """The same for text, with the special tokens that the model's tokenizer adds.

        A list of texts starts a request for each: then handle and queue are lists, which
        stop_request, release_request and sync_request take as well. If one of them is refused, none
        is started.
        model: whose tokenizer to use; None: the installed model's own.
        """
        if isinstance(input_str_or_array, str):
            return self._start_text(model_name, model, input_str_or_array, generate_config_builder)
        handles: list[RequestHandle] = []
        queues: list[ResultQueue] = []
        for text in input_str_or_array:
            status, handle, queue = self._start_text(
                model_name, model, text, generate_config_builder
            )
            if handle is None or queue is None:
                self.release_request(model_name, handles)
                return status, None, None
            handles.append(handle)
            queues.append(queue)
        return AsStatus.ALLSPARK_SUCCESS, handles, queues

    def _start_text(
        self, model_name: str, model: LLM | None, text: str, builder: Builder
    ) -> Started:
        if model is not None:
            ids = model.get_tokenizer().encode(text)
        else:
            installed = self._find(model_name)
            if installed is None:
                return AsStatus.ALLSPARK_PARAM_ERROR, None, None
            if installed.tokenizer is None:
                raise ValueError(
                    f"the folder of {quoted(model_name)} has no tokenizer: pass token ids"
                )
            ids = installed.tokenizer.encode(text, add_special_tokens=True)
        return self._start_request(model_name, {"input_ids": [ids]}, _built(builder))

    def process_json_mode_arguments(self, generate_config: dict[str, Any]) -> None:
        """Nothing to do: the engine knows its models' vocabularies."""

    def print_gen_cfg(self, gen_cfg: Mapping[str, Any]) -> None:
        """Logs a generation config."""
        logger.info("generation config: %s", {k: v for k, v in gen_cfg.items() if k != "vocab"})

    def serialize_model_from_torch(
        self,
        model_name: str,
        model_type: str,
        torch_model: Any,
        model_config: Any,
        save_dir: str | None = None,
        as_model_path: str | None = None,
        as_weight_path: str | None = None,
        data_type: str = "float32",
        derive_type: str = "lmhead",
        multigpu_mode: int = 1,
        do_binary_add_fused: bool = True,
        do_dynamic_quantize_convert: bool = False,
        quant_config: Any = None,
        enable_i8cache_mha: bool = False,
        mha_kv_cache_config: Any = None,
        use_dynamic_ntk: bool = False,
        use_logn_attn: bool = False,
        model_sequence_length: int = 2048,
        seqlen_extrapolation: float = 1.0,
        lora_cfg: Any = None,
        rotary_base: float = 10000.0,
    ) -> NoReturn:
        """Raises UnsupportedError: HuggingFaceModel reads folders that save_pretrained wrote."""
        self.engine.serialize_model_from_torch(
            model_name, model_type, torch_model, model_config, save_dir, as_model_path,
            as_weight_path,
        )  # fmt: skip

    def dump_build_meta_to_proto(
        self, model_proto: Any, weights_path: str, torch_build_param: Any
    ) -> NoReturn:
        """Raises UnsupportedError."""
        self.engine.dump_build_meta_to_proto(model_proto, weights_path, torch_build_param)


def _built(builder: Builder) -> Mapping[str, Any]:
    return builder if isinstance(builder, Mapping) else builder.build()
