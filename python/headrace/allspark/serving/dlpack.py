"""Reads numbers out of DLPack tensors, with nothing but ctypes.

The layout is that of dlpack.h: a capsule named "dltensor" holds a DLManagedTensor. The numbers are
copied and the capsule is left as it is, as in the original: it still owns its tensor, frees it when
it goes, and may be read again.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

_NAME = b"dltensor"
_INT, _UINT, _FLOAT, _BFLOAT = 0, 1, 2, 4
_MAX_ELEMENTS = 1 << 26
_CPU = (1, 3)  # kDLCPU, kDLCUDAHost
_TYPES: dict[tuple[int, int], Any] = {
    (_INT, 8): ctypes.c_int8,
    (_INT, 16): ctypes.c_int16,
    (_INT, 32): ctypes.c_int32,
    (_INT, 64): ctypes.c_int64,
    (_UINT, 8): ctypes.c_uint8,
    (_UINT, 16): ctypes.c_uint16,
    (_UINT, 32): ctypes.c_uint32,
    (_UINT, 64): ctypes.c_uint64,
}


class _Device(Structure):
    _fields_ = (("type", c_int32), ("id", c_int32))


class _DataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _ManagedTensor(Structure):
    _fields_ = (("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p))


def _api(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function


_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _api("PyCapsule_GetPointer", c_void_p, ctypes.py_object, ctypes.c_char_p)


def is_capsule(value: Any) -> bool:
    return type(value).__name__ == "PyCapsule"


def read_integers(value: Any) -> list[list[int]]:
    """The rows of a capsule, or of an object with __dlpack__, in the memory of the CPU.

    One row for a tensor of one dimension. Raises ValueError for anything else. A capsule can be
    read any number of times, until a consumer of another kind has taken its tensor.
    """
    capsule = _capsule(value)
    return _read(_ManagedTensor.from_address(_pointer(capsule, _NAME)).tensor)


def read_floats(value: Any) -> tuple[bytes, int, int]:
    """A tensor [rows, width] of float32, float16 or bfloat16, in the memory of the CPU: its float32
    numbers, its rows and its width. As read_integers. Raises ValueError for anything else."""
    capsule = _capsule(value)
    tensor = _ManagedTensor.from_address(_pointer(capsule, _NAME)).tensor
    dtype = tensor.dtype
    if tensor.device.type not in _CPU:
        raise ValueError(f"it is on device {tensor.device.type}; pass a copy on the CPU")
    if (dtype.code, dtype.bits) not in ((_FLOAT, 32), (_FLOAT, 16), (_BFLOAT, 16)):
        raise ValueError("its elements are not float32, float16 or bfloat16")
    shape = [tensor.shape[i] for i in range(tensor.ndim)] if tensor.ndim in (2, 3) else []
    if dtype.lanes != 1 or (len(shape) == 3 and shape.pop(0) != 1) or len(shape) != 2:
        raise ValueError("its shape must be [rows, hidden size]")
    rows, width = shape
    if min(rows, width) < 0 or max(rows, width, rows * width) > _MAX_ELEMENTS:
        raise ValueError(f"its shape is {shape}")
    if rows * width == 0:
        return b"", rows, width
    strides = [tensor.strides[i] for i in range(tensor.ndim)][-2:] if tensor.strides else []
    if strides and ((strides[1] != 1 and width > 1) or (strides[0] != width and rows > 1)):
        raise ValueError("its rows don't lie one behind another; pass a contiguous copy")
    if not tensor.data:
        raise ValueError("it has no data")
    data = ctypes.string_at(tensor.data + tensor.byte_offset, rows * width * dtype.bits // 8)
    return _as_float32(data, dtype.code, dtype.bits), rows, width


def _as_float32(data: bytes, code: int, bits: int) -> bytes:
    if bits == 32:
        return data
    if code == _FLOAT:
        return array("f", struct.unpack(f"{len(data) // 2}e", data)).tobytes()
    return array("I", (half << 16 for half in memoryview(data).cast("H"))).tobytes()


def _capsule(value: Any) -> Any:
    if not is_capsule(value) and not hasattr(value, "__dlpack__"):
        raise TypeError(f"a {type(value).__name__} is no tensor")
    capsule = value if is_capsule(value) else value.__dlpack__()
    if not _is_valid(capsule, _NAME):
        raise ValueError("the DLPack capsule has been consumed elsewhere, or is none")
    return capsule


def _read(tensor: _Tensor) -> list[list[int]]:
    dtype = tensor.dtype
    if tensor.device.type not in _CPU:
        raise ValueError(f"it is on device {tensor.device.type}; pass a copy on the CPU")
    if (dtype.code, dtype.bits) not in _TYPES or dtype.lanes != 1:
        raise ValueError("its elements are not integers of 8 to 64 bits")
    if tensor.ndim not in (1, 2):
        raise ValueError(f"it has {tensor.ndim} dimensions; ids have one, or two: [1, length]")
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    height, width = (1, *shape)[-2:]
    if min(shape) < 0 or max(height, height * width) > _MAX_ELEMENTS:
        raise ValueError(f"its shape is {shape}")
    if height * width == 0:
        return [[] for _ in range(height)]
    if not tensor.data:
        raise ValueError("it has no data")
    strides = [width, 1]
    if tensor.strides:
        strides = [0, *(tensor.strides[i] for i in range(tensor.ndim))][-2:]
    return _gather(tensor, height, width, strides)


def _gather(tensor: _Tensor, height: int, width: int, strides: list[int]) -> list[list[int]]:
    kind = _TYPES[tensor.dtype.code, tensor.dtype.bits]
    start = tensor.data + tensor.byte_offset
    size = ctypes.sizeof(kind)
    rows = []
    for row in range(height):
        base = start + row * strides[0] * size
        if strides[1] == 1:
            rows.append(list((kind * width).from_address(base)))
        else:
            step = strides[1] * size
            rows.append([kind.from_address(base + i * step).value for i in range(width)])
    return rows
