"""Token ids from whatever holds them: lists, DLPack capsules and objects, arrays, tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.allspark.serving import dlpack
from headrace.quoting import quoted

_CPU = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost


class TokenIdsError(ValueError):
    """Ids that cannot be read; the message says why."""


def read_rows(value: Any) -> list[list[int]]:
    """The rows of a one- or two-dimensional holder of integers, one row for a flat one.

    value: a (nested) list or tuple of ints; a DLPack capsule; an object with __dlpack__ (tensors of
    torch, arrays of numpy and others) in the memory of the CPU; or any other sequence of ints, as
    array.array. A capsule stays as it is: pass it as often as you like.

    Raises TokenIdsError.
    """
    if isinstance(value, (list, tuple)):
        return _from_lists(value)
    if dlpack.is_capsule(value) or hasattr(value, "__dlpack__"):
        _refuse_other_devices(value)
        return _from_dlpack(value)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return _from_lists(list(value))
    raise TokenIdsError(
        "ids must be a list of ints, a tensor, an array or a DLPack capsule, got "
        f"{type(value).__name__}"
    )


def _from_dlpack(value: Any) -> list[list[int]]:
    try:
        return dlpack.read_integers(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        # What DLPack can't carry, as a read-only array, may still be willing to list its elements.
        listed = value.tolist() if hasattr(value, "tolist") else None
        if isinstance(listed, list):
            return _from_lists(listed)
        raise TokenIdsError(f"the ids can't be read: {error}") from error


def _refuse_other_devices(value: Any) -> None:
    ask = getattr(value, "__dlpack_device__", None)
    if ask is not None and (device := ask())[0] not in _CPU:
        raise TokenIdsError(
            f"the ids are in the memory of device {device}: pass a copy on the CPU, as by .cpu()"
        )


def _from_lists(value: Sequence[Any]) -> list[list[int]]:
    if value and all(isinstance(row, (list, tuple)) for row in value):
        return [_row(row) for row in value]
    if len(value) == 1 and hasattr(value[0], "__dlpack__"):
        return read_rows(value[0])  # a batch of one tensor
    return [_row(value)]


def _row(values: Sequence[Any]) -> list[int]:
    try:
        row = [value.__index__() for value in values]
    except (AttributeError, TypeError):
        bad = next(v for v in values if not hasattr(v, "__index__"))
        raise TokenIdsError(
            f"ids must be whole numbers in one or two dimensions, got {quoted(bad)}"
        ) from None
    return row
