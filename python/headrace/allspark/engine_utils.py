"""EngineUtils: the original's converter, which Headrace has no need of."""

from __future__ import annotations

from typing import Any, NoReturn

from headrace.errors import UnsupportedError


class EngineUtils:
    """`Engine().engine`. Headrace reads published folders; nothing is converted from torch."""

    def __init__(self) -> None:
        self.version = ""

    def serialize_model_from_torch(
        self,
        model_name: str,
        model_type: str,
        torch_model: Any,
        model_config: Any,
        save_dir: str | None = None,
        as_model_path: str | None = None,
        as_weight_path: str | None = None,
        *settings: Any,
        **named: Any,
    ) -> NoReturn:
        """Raises ValueError if no path is given, else UnsupportedError (a ValueError, too)."""
        if save_dir is None and (as_model_path is None or as_weight_path is None):
            raise ValueError("give save_dir, or as_model_path and as_weight_path")
        raise UnsupportedError(
            "serialize_model_from_torch: Headrace converts no torch weights; save the model as a "
            "Hugging Face folder (save_pretrained) and load that with HuggingFaceModel"
        )

    def dump_build_meta_to_proto(self, *_: Any) -> NoReturn:
        """Raises UnsupportedError."""
        raise UnsupportedError("dump_build_meta_to_proto: Headrace has no such file")
