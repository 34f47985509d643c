"""QuantizeConfig and KVCacheConfig: how a model and its cache are to be quantized."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, Protocol

from headrace.quoting import quoted

__all__ = [
    "KVCacheConfig",
    "QuantizeConfig",
]

_WIDE = ("FLOAT16", "BFLOAT16")


class GroupSettings(Protocol):
    """What a mode takes of the settings of a quantization method."""

    def get_group_num(self) -> int: ...

    def get_group_settings(self) -> dict[str, int] | None:
        """Group sizes by a regular expression of the weights' names."""
        ...


class QuantizeConfig:
    """activation_type and weight_type together make a mode; another pair is a NotImplementedError.

    quant_settings: where group sizes come from. quan_json and extra_option are the original's older
    way to say the same and are kept as they are.
    """

    class QuantMode(Enum):
        A16W8 = 2
        A16W4 = 3
        A8W8 = 4
        FP8A8W8 = 5

    def __init__(
        self,
        activation_type: str,
        weight_type: str,
        quant_settings: GroupSettings | None = None,
        quan_json: Mapping[str, Any] | None = None,
        extra_option: Mapping[str, Any] | None = None,
    ) -> None:
        self.activation_type = str(activation_type).upper()
        self.weight_type = str(weight_type).upper()
        self.quan_json = quan_json
        self.extra_option = dict(extra_option or {})
        if quant_settings is not None:
            group = quant_settings.get_group_num()
            self.extra_option["SubChannel"] = group != -1
            self.extra_option["GroupSize"] = group
            self.extra_option["GroupSettings"] = quant_settings.get_group_settings()
        self.quantize_mode = self._mode()

    def _mode(self) -> QuantizeConfig.QuantMode:
        activation, weight = self.activation_type, self.weight_type
        if activation == weight == "INT8":
            return self.QuantMode.A8W8
        if activation == weight == "FP8_E4M3":
            return self.QuantMode.FP8A8W8
        if activation in _WIDE and weight in ("INT8", "UINT8"):
            return self.QuantMode.A16W8
        if activation in _WIDE and weight == "UINT4":
            return self.QuantMode.A16W4
        raise NotImplementedError(f"no mode for activations {activation} and weights {weight}")

    def __repr__(self) -> str:
        return (
            f"QuantizeConfig(mode={self.quantize_mode}, activation={self.activation_type}, "
            f"weight={self.weight_type}, extra={self.extra_option})"
        )


class KVCacheConfig:
    """kv_cache_type: "int8" or "uint4". Raises ValueError."""

    class QuantType(IntEnum):
        INT8 = 0
        UINT4 = 1

    def __init__(self, kv_cache_type: str = "int8") -> None:
        if kv_cache_type.upper() not in self.QuantType.__members__:
            raise ValueError(
                f"kv_cache_type must be 'int8' or 'uint4', got {quoted(kv_cache_type)}"
            )
        self.quantize_type_alias = kv_cache_type
        self.quantize_type = self.QuantType[kv_cache_type.upper()]

    def __repr__(self) -> str:
        return f"KVCacheConfig({self.quantize_type_alias})"
