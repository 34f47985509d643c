"""Enumerations, and statuses among them."""

from headrace.compat.allspark.enums import (
    AsCacheMode,
    AsEvictionStrategy,
    AsMHAPrefill,
    AsSchedulingStrategy,
    AsStatus,
    GenerateRequestStatus,
    RoPEScaleMethod,
    TargetDevice,
    VocabType,
)

__all__ = [
    "AsCacheMode",
    "AsEvictionStrategy",
    "AsMHAPrefill",
    "AsSchedulingStrategy",
    "AsStatus",
    "GenerateRequestStatus",
    "RoPEScaleMethod",
    "TargetDevice",
    "VocabType",
]
