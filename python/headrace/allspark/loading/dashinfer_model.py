"""DashInferModel: a model that serialize_to_path wrote, with its configuration beside it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from headrace.allspark.config.diconfig import FILE_NAME, parse_diconfig, read_diconfig
from headrace.allspark.core.as_model_config import AsModelConfig
from headrace.allspark.enums import TargetDevice
from headrace.allspark.errors import ConfigFieldMissingError
from headrace.allspark.generation_config import ASGenerationConfigBuilder
from headrace.allspark.loading import packed_model
from headrace.allspark.loading.loader_base import LLM, read_config
from headrace.allspark.runtime_config import AsModelRuntimeConfigBuilder
from headrace.hub import checked_path, resolve_model

logger = logging.getLogger("headrace")

_SECTIONS = ("generation_config", "runtime_config", "model")


class DashInferModel(LLM):
    """pretrain_model_name_or_path: the folder that serialize_to_path wrote to.

    pretrain_model_name: the common name of its .asgraph and .asparam.
    config_file_path: the configuration (HuggingFaceModel.export_model_diconfig writes it); default:
        dimodel_config.yaml in the folder. config_content: its text instead.

    Raises ValueError, and ConfigFieldMissingError for a missing section.
    """

    def __init__(
        self,
        pretrain_model_name_or_path: str | os.PathLike[str],
        pretrain_model_name: str = "model",
        config_file_path: str | os.PathLike[str] | None = None,
        config_content: str | None = None,
    ) -> None:
        self.di_model_path = checked_path(
            pretrain_model_name_or_path, "pretrain_model_name_or_path"
        )
        self.safe_model_name = pretrain_model_name.replace("/", "_")
        if config_content is not None:
            config = parse_diconfig(config_content)
        else:
            config = read_diconfig(config_file_path or Path(self.di_model_path, FILE_NAME))
        for section in _SECTIONS:
            if not isinstance(config.get(section), dict):
                raise ConfigFieldMissingError(section, config)
        self.di_model_config: dict[str, Any] = config

    def _files(self) -> packed_model.ModelFiles:
        stem = str(Path(self.di_model_path, self.safe_model_name))
        return packed_model.find_model(stem + ".asgraph", stem + ".asparam")

    def load_model(self, **kwargs: Any) -> DashInferModel:
        """Checks that the files are there and belong together. Arguments have no effect.

        Raises AsException.
        """
        if kwargs:
            logger.warning("load_model: %.200s: no effect", ", ".join(kwargs))
        self._files()
        return self

    def read_model_config(self) -> DashInferModel:
        return self

    def init_quantization(
        self, enable: bool = True, customized_quant_config: dict[str, Any] | None = None
    ) -> DashInferModel:
        """No effect: the files are what they are."""
        return self

    def _tokenizer_folder(self) -> Path:
        named = (self.di_model_config.get("tokenizer") or {}).get("local_path")
        return resolve_model(named, weights=False) if named else self._files().folder

    def get_model_config(self) -> dict[str, Any]:
        return {**read_config(self._files().folder), **self.di_model_config["model"]}

    def get_model_context_length(self) -> int:
        return int(self.get_model_config()["max_position_embeddings"])

    def create_reference_runtime_config_builder(
        self,
        engine_model_name: str | None = None,
        device_type: TargetDevice | str | None = None,
        device_ids: list[int] | None = None,
        max_batch: int | None = None,
        max_context_length: int = -1,
    ) -> AsModelRuntimeConfigBuilder:
        """The configuration's own values, but for those given."""
        builder = AsModelRuntimeConfigBuilder().from_dict(self.di_model_config["runtime_config"])
        builder.model_dir(self.di_model_path, self.safe_model_name)
        if engine_model_name is not None:
            builder.model_name(engine_model_name)
        if device_type is not None:
            builder.compute_unit(device_type, device_ids)
        if max_batch is not None:
            builder.max_batch(max_batch)
        if max_context_length != -1:
            builder.max_length(max_context_length)
        return builder

    def create_reference_generation_config_builder(
        self, runtimeConfig: AsModelConfig | None = None
    ) -> ASGenerationConfigBuilder:
        config = self.di_model_config["generation_config"]
        builder = ASGenerationConfigBuilder(config)
        own = ("stop_words_ids", "presence_penalty")
        builder.update({name: config[name] for name in own if config.get(name) is not None})
        longest = int(config.get("max_length") or self.get_model_context_length())
        if runtimeConfig is not None:
            longest = min(longest, runtimeConfig.engine_max_length)
        return builder.max_length(longest)

    def serialize_to_memory(self, engine: Any, *args: Any, **kwargs: Any) -> DashInferModel:
        """Nothing to do: it is serialized."""
        return self

    def serialize_to_path(self, engine: Any, *args: Any, **kwargs: Any) -> DashInferModel:
        """Nothing to do: it is serialized."""
        return self
