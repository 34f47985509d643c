"""Settings for weights that are quantized when the model is converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.allspark.quant.quantization_config import (
    BITS,
    SIGNED,
    WEIGHT_FORMATS,
    QuantComputeMode,
    QuantizationSettings,
    SignType,
)
from headrace.quoting import quoted

__all__ = [
    "IQSettings",
]


class IQSettings(QuantizationSettings, names=("iq", "instant_quant")):
    """quant_config: "quant_method" ("instant_quant" or "iq") and "weight_format" (one of
    WEIGHT_FORMATS), and optionally "group_size", "group_settings", "compute_method"
    ("weight_only", "activate_quant") and "activate_format". Raises ValueError.
    """

    method = "instant_quant"

    def __init__(self, quant_config: Mapping[str, Any]) -> None:
        super().__init__()
        if "weight_format" not in quant_config:
            raise ValueError("weight_format is missing, as in {'weight_format': 'int8'}")
        self.weight_format = quant_config["weight_format"]
        if self.weight_format not in WEIGHT_FORMATS:
            raise ValueError(
                f"weight_format must be one of {', '.join(WEIGHT_FORMATS)}, got "
                f"{quoted(self.weight_format)}"
            )
        self.weight_sign = SignType.Signed if self.weight_format in SIGNED else SignType.Unsigned
        self.weight_bits = BITS[self.weight_format]
        self.group_size = quant_config.get("group_size", -1)
        self._check_groups(quant_config.get("group_settings"))
        self.quant_compute_mode = quant_config.get("compute_method", QuantComputeMode.WeightOnly)
        self.activate_type = quant_config.get("activate_format", "int8")
        self._check_compute_mode()
        self.sym = self.quant_compute_mode == QuantComputeMode.ActivateQuant

    def _check_compute_mode(self) -> None:
        mode = self.quant_compute_mode
        if mode not in (QuantComputeMode.WeightOnly, QuantComputeMode.ActivateQuant):
            raise ValueError(
                f"compute_method must be 'weight_only' or 'activate_quant', got {quoted(mode)}"
            )
        if mode == QuantComputeMode.WeightOnly:
            return
        if self.weight_format not in ("int8", "fp8_e4m3"):
            raise ValueError(
                f"activate_quant needs int8 or fp8_e4m3, got {quoted(self.weight_format)}"
            )
        if self.group_size != -1 or self.group_settings:
            raise ValueError("activate_quant works per channel only: leave group_size at -1")
