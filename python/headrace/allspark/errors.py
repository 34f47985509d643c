"""Exceptions of this package."""

from __future__ import annotations

from typing import Any

from headrace.allspark.enums import AsStatus

__all__ = [
    "AsException",
    "ConfigFieldMissingError",
    "ModelSerializerException",
]


class AsException(RuntimeError):
    """A call that has no status to return failed. `status` says how, the message why."""

    def __init__(self, status: AsStatus, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status


class ModelSerializerException(Exception):
    """A model folder could not be read. Prints as "[code] model"; `args[0]` says why."""

    def __init__(self, message: str, code: int, model_name: Any) -> None:
        super().__init__(message)
        self.code = code
        self.model_name = model_name

    def __str__(self) -> str:
        return f"[{self.code}] {self.model_name}"


class ConfigFieldMissingError(ValueError):
    """A section that a model's configuration must have is not there."""

    def __init__(self, field: str, config_dict: Any) -> None:
        super().__init__(
            f"config required field '{field}' is missing, the fields are: {sorted(config_dict)}"
        )
