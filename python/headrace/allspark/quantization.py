"""DashInfer's module path of quantization configs."""

from headrace.compat.allspark.quantization import (
    KVCacheConfig,
    QuantizeConfig,
)

__all__ = [
    "KVCacheConfig",
    "QuantizeConfig",
]
