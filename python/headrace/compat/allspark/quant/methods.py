"""Quantization methods by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.compat.allspark.quant.quantization_config import QuantizationSettings
from headrace.compat.allspark.quant.quantization_config_gptq import GPTQSettings
from headrace.compat.allspark.quant.quantization_config_iq import IQSettings

QUANT_CONFIG_MAP: dict[str, Callable[[Mapping[str, Any]], QuantizationSettings]] = {
    "gptq": GPTQSettings,
    "iq": IQSettings,
    "instant_quant": IQSettings,
}


def get_quant_settings_cls(
    method: str, quant_cfg: Mapping[str, Any] | None = None
) -> QuantizationSettings:
    """Settings of that method. Raises ValueError, NotImplementedError for an unknown one."""
    return QuantizationSettings.from_hf_config({**(quant_cfg or {}), "quant_method": method})
