"""Making and closing models leaves nothing behind."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

from headrace import LLM, SamplingParams, shipped_model

CYCLES = 60
# Of a cycle, on average: far below any object of a model, far above what the allocator's own lists
# do (measured: below 10).
MOST_BYTES = 128


class _MallocInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def bytes_in_use() -> int:
    """Of malloc, in all its arenas and mappings."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = _MallocInfo
    gc.collect()
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def cycle(folder: Path) -> None:
    """With ids: a tokenizer that has been used leaves some hundred bytes in its package."""
    with LLM(folder, num_threads=1, kv_cache_bytes=1 << 22, max_model_len=64) as llm:
        params = SamplingParams(max_tokens=2, temperature=0.0)
        (output,) = llm.generate([[5, 6]], params, use_tqdm=False)
        assert output.error_code == 200


def test_models_that_come_and_go_leave_no_memory_behind() -> None:
    folder = Path(shipped_model())
    for _ in range(CYCLES):
        cycle(folder)
    before = bytes_in_use()
    for _ in range(CYCLES):
        cycle(folder)
    assert (bytes_in_use() - before) / CYCLES < MOST_BYTES
