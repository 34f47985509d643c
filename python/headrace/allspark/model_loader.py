"""DashInfer's module path of the loaders."""

from headrace.compat.allspark.model_loader import (
    LLM,
    ConfigFieldMissingError,
    DashInferModel,
    HuggingFaceModel,
    LoadFormat,
    ModelSerializerException,
)

__all__ = [
    "LLM",
    "ConfigFieldMissingError",
    "DashInferModel",
    "HuggingFaceModel",
    "LoadFormat",
    "ModelSerializerException",
]
