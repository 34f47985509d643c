"""What the settings of every quantization method have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from headrace.allspark.quantization import QuantizeConfig
from headrace.quoting import quoted

__all__ = [
    "QuantComputeMode",
    "QuantizationSettings",
    "SignType",
    "SubChannel",
]

GROUP_SIZES = (-1, 32, 64, 128, 256, 512)  # -1: one scale per channel
SIGNED = ("int8", "int4", "fp8_e4m3")
WEIGHT_FORMATS = ("int8", "uint8", "int4", "uint4", "fp8_e4m3")
BITS = {"int8": 8, "uint8": 8, "fp8_e4m3": 8, "int4": 4, "uint4": 4}


# Filled by the classes of the methods, which the package imports.
QUANT_CONFIG_MAP: dict[str, Callable[[Mapping[str, Any]], QuantizationSettings]] = {}


class SubChannel(Enum):
    TPSplit = ("TPSplit",)
    ContinuousSplit = ("CPContinuousSplit",)


class SignType(Enum):
    AUTO = "AutoSign"
    Signed = "Signed"
    Unsigned = "Unsigned"


class QuantComputeMode:
    WeightOnly = "weight_only"  # weights are widened, activations stay 16 bits
    ActivateQuant = "activate_quant"  # activations are quantized, too


class QuantizationSettings:
    """Parsed settings. `method`, `weight_format` and `quant_compute_mode` say what is asked for."""

    method = ""

    def __init_subclass__(cls, names: Sequence[str] = (), **kwargs: Any) -> None:
        """`names`: values of "quant_method" that mean this class."""
        super().__init_subclass__(**kwargs)
        QUANT_CONFIG_MAP.update(dict.fromkeys(names, cls))

    def __init__(self) -> None:
        self.group_size = -1
        self.weight_bits = 8
        self.weight_format = "int8"
        self.weight_sign = SignType.AUTO
        self.desc_act = False
        self.sym = True
        self.quant_compute_mode = QuantComputeMode.WeightOnly
        self.activate_type = "int8"
        self.group_settings: dict[str, int] | None = None

    @staticmethod
    def from_hf_config(config_dict: Mapping[str, Any]) -> QuantizationSettings:
        """By its "quant_method". Raises ValueError, NotImplementedError for an unknown method."""
        method = config_dict.get("quant_method")
        if method not in QUANT_CONFIG_MAP:
            raise NotImplementedError(
                f"quant_method {quoted(method)} is not known: use one of "
                f"{', '.join(QUANT_CONFIG_MAP)}"
            )
        return QUANT_CONFIG_MAP[method](config_dict)

    def get_name(self) -> str:
        return self.method

    def get_weight_bits(self) -> int:
        return self.weight_bits

    def is_quant_symmetric(self) -> bool:
        return self.sym

    def get_group_num(self) -> int:
        return self.group_size

    def get_group_settings(self) -> dict[str, int] | None:
        """Group sizes by a regular expression of the weights' names."""
        return self.group_settings

    def get_subchannel_method(self) -> SubChannel:
        return SubChannel.ContinuousSplit

    def get_activate_data_setting(self) -> str:
        return self.activate_type

    def guess_weight_data_type(self) -> str:
        return "int8" if self.weight_bits == 8 else "uint4"

    def to_as_quant_config(
        self, activation_data_type: str, weight_data_type: str | None = None
    ) -> Any:
        """The QuantizeConfig of these settings. Raises NotImplementedError for no such mode."""
        weight = weight_data_type or self.guess_weight_data_type()
        return QuantizeConfig(activation_data_type, weight, self)

    def as_dict(self) -> dict[str, Any]:
        """What a configuration keeps of them."""
        return {
            "quant_method": self.method,
            "weight_format": self.weight_format,
            "compute_method": self.quant_compute_mode,
            "group_size": self.group_size,
        }

    def _check_groups(self, settings: Mapping[str, int] | None) -> None:
        sizes = [self.group_size, *(settings or {}).values()]
        bad = [size for size in sizes if size not in GROUP_SIZES]
        if bad:
            raise ValueError(f"group_size must be one of {GROUP_SIZES}, got {quoted(bad[0])}")
        self.group_settings = None if settings is None else dict(settings)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__} (group_size={self.group_size}, weight_bits={self.weight_bits}, "
            f"desc_act={self.desc_act}, sym={self.sym})"
        )
