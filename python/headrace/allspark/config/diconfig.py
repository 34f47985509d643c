"""DashInfer's module path of `DIConfigBuilder`."""

from headrace.compat.allspark.config.diconfig import (
    DIConfigBuilder,
    parse_diconfig,
    read_diconfig,
)

__all__ = [
    "DIConfigBuilder",
    "parse_diconfig",
    "read_diconfig",
]
