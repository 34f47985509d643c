"""DashInfer's module path of runtime configs."""

from headrace.compat.allspark.runtime_config import (
    AsModelRuntimeConfigBuilder,
    get_cache_mode_from_str,
)

__all__ = [
    "AsModelRuntimeConfigBuilder",
    "get_cache_mode_from_str",
]
