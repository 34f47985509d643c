"""DashInfer's module path of generation configs."""

from headrace.compat.allspark.generation_config import (
    ASGenerationConfigBuilder,
    GenerationConfigAdapter,
    as_rand_max_int,
)

__all__ = [
    "ASGenerationConfigBuilder",
    "GenerationConfigAdapter",
    "as_rand_max_int",
]
