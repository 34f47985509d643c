"""Settings of a checkpoint that was quantized by GPTQ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.allspark.quant.quantization_config import QuantizationSettings, SignType
from headrace.quoting import quoted

__all__ = [
    "GPTQSettings",
]


class GPTQSettings(QuantizationSettings, names=("gptq",)):
    """quant_config: the "quantization_config" of the model's config.json ("bits" 4 or 8).

    Raises ValueError, and NotImplementedError for desc_act.
    """

    method = "gptq"

    def __init__(self, quant_config: Mapping[str, Any]) -> None:
        super().__init__()
        self.weight_bits = quant_config.get("bits", 0)
        if self.weight_bits not in (4, 8):
            raise ValueError(f"bits must be 4 or 8, got {quoted(quant_config.get('bits'))}")
        self.weight_format = self.guess_weight_data_type()
        self.group_size = quant_config.get("group_size", -1)
        self._check_groups(quant_config.get("group_settings"))
        self.desc_act = bool(quant_config.get("desc_act", False))
        if self.desc_act:
            raise NotImplementedError("desc_act=True is not supported")
        self.sym = bool(quant_config.get("sym", True))
        if "weight_sign" in quant_config:
            signed = bool(quant_config["weight_sign"])
            self.weight_sign = SignType.Signed if signed else SignType.Unsigned
