"""DashInfer's module path of `GPTQSettings`."""

from headrace.compat.allspark.quant.quantization_config_gptq import (
    GPTQSettings,
)

__all__ = [
    "GPTQSettings",
]
