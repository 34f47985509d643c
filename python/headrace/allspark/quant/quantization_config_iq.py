"""DashInfer's module path of `IQSettings`."""

from headrace.compat.allspark.quant.quantization_config_iq import (
    IQSettings,
)

__all__ = [
    "IQSettings",
]
