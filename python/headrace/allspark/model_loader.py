"""Loaders: from a model folder to what the engine installs."""

from __future__ import annotations

from enum import Enum

from headrace.allspark.errors import ConfigFieldMissingError, ModelSerializerException
from headrace.allspark.loading.dashinfer_model import DashInferModel
from headrace.allspark.loading.huggingface_model import HuggingFaceModel
from headrace.allspark.loading.loader_base import LLM

__all__ = [
    "LLM",
    "ConfigFieldMissingError",
    "DashInferModel",
    "HuggingFaceModel",
    "LoadFormat",
    "ModelSerializerException",
]


class LoadFormat(str, Enum):
    AUTO = "auto"
    PT = "pt"
    SAFETENSORS = "safetensors"
