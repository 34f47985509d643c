"""Makes gguf_blocks.bin beside this file: blocks of every type that is read of GGUF files, and what
the gguf package makes of them. Needs gguf and numpy; see README.md.

python tests/golden/gguf_blocks.py

For each type: its number and how many blocks follow (u32), the blocks, their numbers as float32.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

FILE = Path(__file__).with_name("gguf_blocks.bin")
# 0, -0, the smallest and the largest subnormal, the largest number, Inf, -Inf, NaN
HALVES = (0x0000, 0x8000, 0x0001, 0x03FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00)
E8M0 = (0, 1, 2, 127, 128, 253, 254, 255)
# Where a block has its float16 scales.
SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
# The package leaves float64 to numpy.
PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F64": np.float64}


def plain_blocks(name: str, draws: np.random.Generator) -> np.ndarray:
    numbers = draws.standard_normal(24)
    if name == "BF16":
        bits = numbers.astype(np.float32).view(np.uint32) >> 16
        special = np.array([*HALVES[:5], 0x7F80, 0xFF80, 0x7FC0])
        return np.concatenate([bits, special]).astype(np.uint16)
    # Of float64, some that float32 doesn't hold: ties, subnormals and overflow.
    special = [0.0, -0.0, 2.0**-149, 2.0**-150, 1 + 2.0**-24, 1e39, np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        halves = np.array(HALVES, np.uint16).view(np.float16)
        return np.concatenate([numbers, special, halves]).astype(PLAIN[name])


def scaled_blocks(name: str, size: int, draws: np.random.Generator) -> np.ndarray:
    """Random bytes; two blocks with usual scales, then one for each special scale."""
    blocks = draws.integers(0, 256, (2 + len(HALVES), size), np.uint8)
    if name == "MXFP4":
        blocks[2:, 0] = E8M0
        return blocks
    for place, at in enumerate(SCALES[name]):
        halves = draws.standard_normal(len(blocks)).astype(np.float16)
        # A block has two different ones, where it has two scales.
        halves[2:] = np.roll(np.array(HALVES, np.uint16), 3 * place).view(np.float16)
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks


def record(name: str) -> bytes:
    kind = GGMLQuantizationType[name]
    draws = np.random.default_rng(int(kind))
    if name in PLAIN:
        numbers = plain_blocks(name, draws)
        blocks = numbers.view(np.uint8).reshape(len(numbers), -1)
    else:
        blocks = scaled_blocks(name, GGML_QUANT_SIZES[kind][1], draws)
    with np.errstate(all="ignore"):
        if name == "F64":
            values = blocks.view(np.float64).astype(np.float32)
        else:
            values = dequantize(blocks, kind)
    return struct.pack("<II", kind, len(blocks)) + blocks.tobytes() + values.tobytes()


if __name__ == "__main__":
    FILE.write_bytes(b"".join(record(name) for name in (*PLAIN, *SCALES, "MXFP4")))
