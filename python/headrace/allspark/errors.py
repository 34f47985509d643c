"""Exceptions of this package."""

from headrace.compat.allspark.errors import (
    AsException,
    ConfigFieldMissingError,
    ModelSerializerException,
)

__all__ = [
    "AsException",
    "ConfigFieldMissingError",
    "ModelSerializerException",
]
