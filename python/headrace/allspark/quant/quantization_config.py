"""DashInfer's module path of what quantization settings have in common."""

from headrace.compat.allspark.quant.quantization_config import (
    QuantComputeMode,
    QuantizationSettings,
    SignType,
    SubChannel,
)

__all__ = [
    "QuantComputeMode",
    "QuantizationSettings",
    "SignType",
    "SubChannel",
]
