"""HuggingFaceModel: a model folder as published on Hugging Face."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.allspark.config.diconfig import DIConfigBuilder
from headrace.allspark.core import engine_api
from headrace.allspark.core.as_model_config import AsModelConfig
from headrace.allspark.enums import RoPEScaleMethod, TargetDevice
from headrace.allspark.errors import ModelSerializerException
from headrace.allspark.generation_config import ASGenerationConfigBuilder
from headrace.allspark.loading import packed_model
from headrace.allspark.loading.loader_base import LLM, read_config
from headrace.allspark.quant.quantization_config import (
    QuantComputeMode,
    QuantizationSettings,
)
from headrace.allspark.runtime_config import AsModelRuntimeConfigBuilder
from headrace.hub import resolve_model
from headrace.native import describe_model
from headrace.text.model_files import read_json

logger = logging.getLogger("headrace")


class HuggingFaceModel(LLM):
    """Reads configuration and tokenizer; the engine maps the weights itself at install_model.

    pretrain_model_name_or_path: a local folder, or the id of a model on the hub.
    pretrain_model_name: what files written by serialize_to_path are called.
    in_memory_serialize: which way `serialize` goes.
    user_set_data_type: "float32", "bfloat16" or "float16"; None: the checkpoint's.
    trust_remote_code: a permission that is never used: no code of a model is run.
    """

    def __init__(
        self,
        pretrain_model_name_or_path: str | os.PathLike[str],
        pretrain_model_name: str,
        in_memory_serialize: bool = False,
        user_set_data_type: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.hf_model_path = os.fspath(pretrain_model_name_or_path)
        self.pretain_model_name = pretrain_model_name  # the original's spelling
        self.in_memory_serialize = in_memory_serialize
        self.user_set_data_type = user_set_data_type
        self.data_type = user_set_data_type or "auto"
        self.trust_remote_code = trust_remote_code
        self.hf_model_config: dict[str, Any] | None = None
        self.quant_setting: QuantizationSettings | None = None
        self._quantizes = False
        self._folder: Path | None = None
        self._family: engine_api.ModelInfo | None = None
        self._serialized: tuple[str, str] | None = None  # .asgraph and .asparam

    def load_model(
        self,
        override_data_type: str | None = None,
        direct_load: bool = False,
        load_format: str = "auto",
        **kwargs: Any,
    ) -> HuggingFaceModel:
        """Finds the folder, fetching it from the hub if need be, and reads its configuration.

        override_data_type: as user_set_data_type. direct_load: weights are always read directly.
        load_format: "auto" or "safetensors"; others, and further arguments, have no effect and are
            logged.
        Raises ModelSerializerException if there is no model that Headrace can read.
        """
        if override_data_type is not None:
            self.data_type = override_data_type
        if load_format not in (None, "auto", "safetensors"):
            logger.warning("load_format=%r has no effect: safetensors are read", str(load_format))
        if kwargs:
            logger.warning("load_model: %.200s: no effect", ", ".join(kwargs))
        try:
            self._folder = resolve_model(self.hf_model_path)
            self.read_model_config()
        except (OSError, ImportError, ValueError, engine_api.HeadraceError) as error:
            logger.error("load_model: %s", error)
            raise ModelSerializerException(str(error), 1, self) from error
        return self

    def read_model_config(self) -> HuggingFaceModel:
        """Raises ValueError for a model of a family that Headrace doesn't have."""
        if self.hf_model_config is None:
            folder = self._model_folder()
            config = read_config(folder)
            try:
                self._family = describe_model(folder)
            except engine_api.HeadraceError as error:
                raise ValueError(f"No adapter found for Model: {error}") from error
            self.hf_model_config = config
        return self

    def _model_folder(self) -> Path:
        if self._folder is None:
            self._folder = resolve_model(self.hf_model_path, weights=False)
        return self._folder

    def _tokenizer_folder(self) -> Path:
        return self._model_folder()

    @property
    def as_model_config(self) -> dict[str, Any]:
        return self.get_model_config()

    def get_model_config(self) -> dict[str, Any]:
        self.read_model_config()
        return dict(self.hf_model_config or {})

    def get_model_context_length(self) -> int:
        self.read_model_config()
        assert self._family is not None
        return int(self._family.max_model_len)

    def set_rope_scale_method(
        self, method: RoPEScaleMethod, parameter_dict: Mapping[str, Any]
    ) -> HuggingFaceModel:
        """No effect: "rope_scaling" of the model's config.json is what counts."""
        logger.warning("set_rope_scale_method has no effect: config.json's rope_scaling counts")
        return self

    # Quantization: only noted here, install_model says what can run.

    def init_quantization(
        self, enable: bool = True, customized_quant_config: dict[str, Any] | None = None
    ) -> HuggingFaceModel:
        """Takes the settings given, else those of config.json; none with enable=False.

        Raises ValueError if there are none to take.
        """
        if not enable:
            self.quant_setting = None
            return self
        config = customized_quant_config or self.get_model_config().get("quantization_config")
        if not config:
            raise ValueError("the model's config.json has no quantization_config")
        self.quant_setting = QuantizationSettings.from_hf_config(config)
        return self

    def get_as_quant_config_and_weight_process(
        self, weight_only_quant: bool = False, customized_quant_config: dict[str, Any] | None = None
    ) -> Any:
        """The QuantizeConfig of the settings."""
        if self.quant_setting is None or customized_quant_config:
            self.init_quantization(True, customized_quant_config)
        settings = self.quant_setting
        assert settings is not None
        weight_only = settings.quant_compute_mode == QuantComputeMode.WeightOnly
        wide = self.data_type if self.data_type in ("float16", "bfloat16") else "bfloat16"
        activation = wide if weight_only or weight_only_quant else settings.activate_type
        return settings.to_as_quant_config(activation)

    # Serialization.

    def serialize(
        self,
        engine: Any,
        model_output_dir: str = "",
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        customized_quant_config: dict[str, Any] | None = None,
        multinode_mode: bool = True,
        lora_cfg: Mapping[str, Any] | None = None,
    ) -> HuggingFaceModel:
        """serialize_to_memory or, without `in_memory_serialize`, serialize_to_path."""
        common: dict[str, Any] = {
            "enable_quant": enable_quant,
            "weight_only_quant": weight_only_quant,
            "multinode_mode": multinode_mode,
            "customized_quant_config": customized_quant_config,
            "lora_cfg": lora_cfg,
        }
        if self.in_memory_serialize:
            return self.serialize_to_memory(engine, **common)
        return self.serialize_to_path(engine, model_output_dir, **common)

    def serialize_to_memory(
        self,
        engine: Any,
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        multinode_mode: bool = True,
        customized_quant_config: dict[str, Any] | None = None,
        lora_cfg: Mapping[str, Any] | None = None,
    ) -> HuggingFaceModel:
        """Costs nothing: the engine maps the folder's weights itself at install_model.

        weight_only_quant, multinode_mode: no effect; one that asks for something else is logged.
        """
        self._note_quantization(enable_quant, customized_quant_config)
        _log_no_effect(enable_quant and weight_only_quant, multinode_mode)
        engine.adapters.note(lora_cfg)
        self._serialized = None
        return self

    def serialize_to_path(
        self,
        engine: Any,
        model_output_dir: str = "",
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        skip_if_exists: bool = False,
        multinode_mode: bool = True,
        customized_quant_config: dict[str, Any] | None = None,
        lora_cfg: Mapping[str, Any] | None = None,
    ) -> HuggingFaceModel:
        """Writes `<name>.asgraph` and `<name>.asparam`: weights that load without being packed.

        skip_if_exists: leaves files alone that are there and made from this very model; others are
            written anew.
        weight_only_quant, multinode_mode: as in serialize_to_memory.
        Raises ValueError without `model_output_dir`, AsException if packing fails.
        """
        if not model_output_dir:
            raise ValueError("model_output_dir is required to serialize to a path")
        self._note_quantization(enable_quant, customized_quant_config)
        _log_no_effect(enable_quant and weight_only_quant, multinode_mode)
        engine.adapters.note(lora_cfg)
        self.read_model_config()
        self._serialized = packed_model.write_model(
            self._model_folder(),
            Path(model_output_dir),
            self.pretain_model_name.replace("/", "_"),
            data_type=self.data_type,
            quantization=self._quantization(),
            skip_if_exists=skip_if_exists,
        )
        return self

    def _note_quantization(self, enable: bool, customized: dict[str, Any] | None) -> None:
        self._quantizes = enable
        if enable and (customized or self.quant_setting is None):
            self.init_quantization(True, customized)

    def _quantization(self) -> dict[str, Any] | None:
        return self.quant_setting.as_dict() if self._quantizes and self.quant_setting else None

    # Configurations.

    def create_reference_runtime_config_builder(
        self,
        engine_model_name: str,
        device_type: TargetDevice | str,
        device_ids: list[int],
        max_batch: int,
        max_context_length: int = -1,
    ) -> AsModelRuntimeConfigBuilder:
        """A builder that knows the files; -1: the model's own context length."""
        if max_context_length == -1:
            max_context_length = self.get_model_context_length()
        folder = str(self._model_folder())
        graph, weights = self._serialized or (folder, folder)
        builder = (
            AsModelRuntimeConfigBuilder()
            .model_name(engine_model_name)
            .model_file_path(graph, weights)
            .compute_unit(device_type, device_ids)
            .max_length(max_context_length)
            .max_batch(max_batch)
        )
        return builder.loader_fields(self.data_type, self._quantization())

    def create_reference_generation_config_builder(
        self, runtimeConfig: AsModelConfig | None = None
    ) -> ASGenerationConfigBuilder:
        """The model's generation_config.json; max_length as far as model and engine go."""
        config = read_json(self._model_folder() / "generation_config.json")
        if config:
            builder = ASGenerationConfigBuilder(config)
        else:
            builder = ASGenerationConfigBuilder()
            builder.process_eos_tokens(
                self.get_model_config().get("eos_token_id"), builder.dict_store
            )
        if runtimeConfig is not None:
            builder.max_length(
                min(self.get_model_context_length(), runtimeConfig.engine_max_length)
            )
        return builder

    def export_model_diconfig(self, output_path: str | os.PathLike[str]) -> HuggingFaceModel:
        """Writes the model's configuration for DashInferModel."""
        runtime = (
            self.create_reference_runtime_config_builder("model", TargetDevice.CPU, [0], 64)
            .max_length(min(2048, self.get_model_context_length()))
            .build()
        )
        generation = self.create_reference_generation_config_builder(runtime)
        builder = DIConfigBuilder().model(self.get_model_config()).runtime_config(runtime)
        builder.generation_config(generation.build()).tokenizer("local", str(self._model_folder()))
        builder.build_yaml_path(output_path)
        return self


def _log_no_effect(weight_only_quant: bool, multinode_mode: bool) -> None:
    if weight_only_quant:
        logger.warning(
            "weight_only_quant=True has no effect: the device decides whether activations are "
            "rounded, too"
        )
    if not multinode_mode:
        logger.warning("multinode_mode=False has no effect: nothing is split for nodes")
