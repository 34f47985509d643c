"""Quantization methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.allspark.quant.quantization_config import QUANT_CONFIG_MAP, QuantizationSettings

__all__ = ["QUANT_CONFIG_MAP", "get_quant_settings_cls"]


def get_quant_settings_cls(
    method: str, quant_cfg: Mapping[str, Any] | None = None
) -> QuantizationSettings:
    """Settings of that method. Raises ValueError, NotImplementedError for an unknown one."""
    return QuantizationSettings.from_hf_config({**(quant_cfg or {}), "quant_method": method})
