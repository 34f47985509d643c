"""The longest pause that an image causes a running decode, beside that of a text as long.

    python benchmarks/encoding.py [--rows 64 256 1024 4096] [--quantization wint8] [--repeats 3]

A decoder of 6 layers and a tower of 4 in the form of Qwen2.5-VL, random weights, an image of 4096
tokens. Pauses are gaps between two tokens of the decode, in processor time of the thread that
computes, so that others' work on the machine doesn't count: of each run the longest, of runs the
median. `rows`: max_encoder_tokens; steps have at most --step rows. The text goes in such chunks.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import common
from headrace import ModelOptions
from headrace.native import Engine, GenerationConfig, MediaInput, MediaRun

PATCH, MERGE = 14, 2
CELL = PATCH * MERGE
SHAPES = {
    "full": {"cells": 64, "hidden": 896, "wide": 4864, "layers": 6, "heads": 14, "vocab": 32000,
             "tower": 320, "tower_wide": 856, "tower_heads": 4, "depth": 4},
    "smoke": {"cells": 8, "hidden": 128, "wide": 256, "layers": 2, "heads": 2, "vocab": 1000,
              "tower": 64, "tower_wide": 128, "tower_heads": 2, "depth": 2},
}  # fmt: skip
WARM_UP = 8  # tokens before anything is measured


def config_of(shape: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
        "hidden_size": shape["hidden"], "intermediate_size": shape["wide"],
        "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
        "num_key_value_heads": 2, "vocab_size": shape["vocab"], "hidden_act": "silu",
        "max_position_embeddings": 16384, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 8, 8]},
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "eos_token_id": 2,
        "vision_config": {
            "depth": shape["depth"], "fullatt_block_indexes": [shape["depth"] - 1],
            "hidden_size": shape["tower"], "intermediate_size": shape["tower_wide"],
            "num_heads": shape["tower_heads"], "out_hidden_size": shape["hidden"],
            "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2,
            "window_size": 112, "hidden_act": "silu", "in_chans": 3,
        },
    }  # fmt: skip


def image(cells: int, seed: int) -> tuple[list[int], list[MediaInput]]:
    """A prompt with an image of cells x cells tokens."""
    side, rows = cells * CELL, cells * cells
    table = struct.pack("<768f", *((byte - 128) / 64 for _ in range(3) for byte in range(256)))
    run = MediaRun(1, rows, grid=(1, cells, cells), steps=[0])
    pixels = random.Random(seed).randbytes(3 * side * side)
    made = MediaInput(False, [run], pixels=pixels, height=side, width=side, patch_size=PATCH,
                      merge_size=MERGE, temporal_patch_size=2, table=table)  # fmt: skip
    return [5] * (rows + 2), [made]


class Decode:
    """A request that goes on, and when its tokens came."""

    def __init__(self, engine: Engine, most: int) -> None:
        self.times: list[float] = []
        config = GenerationConfig(temperature=0.0, max_tokens=most, ignore_eos=True)
        self._request = engine.submit("m", list(range(3, 19)), config)
        self._request._core.results().on_output(lambda: self.times.append(time.thread_time()))
        self.wait_for(WARM_UP)

    def wait_for(self, count: int) -> None:
        while len(self.times) < count:
            time.sleep(0.001)

    def longest(self, run: Callable[[], object]) -> float:
        """Gap from before run() is called until a token behind its end."""
        first = len(self.times) - 1
        run()
        self.wait_for(len(self.times) + 1)
        return max(after - before for before, after in pairwise(self.times[first:]))

    def end(self) -> None:
        self._request.cancel()
        self._request.wait()


def answer(engine: Engine, ids: list[int], media: list[MediaInput]) -> None:
    config = GenerationConfig(temperature=0.0, max_tokens=1, ignore_eos=True)
    engine.submit("m", ids, config, media=media).wait()


def measure(folder: Path, shape: dict[str, int], args: argparse.Namespace, rows: int) -> None:
    cells = shape["cells"]
    context = cells * cells + 3000
    options = ModelOptions(
        path=str(folder), device="cpu", dummy_weights=True, num_threads=args.threads,
        max_model_len=context, max_num_seqs=4, max_num_batched_tokens=args.step,
        enable_prefix_caching=False, num_kv_blocks=2 * context // 16 + 8, block_size=16,
        max_encoder_tokens=rows, quantization=args.quantization,
    )  # fmt: skip
    alone, text, shown, seconds = [], [], [], []
    with Engine() as engine:
        engine.install_model("m", options)
        engine.start_model("m")
        for turn in range(args.repeats + 1):
            decode = Decode(engine, 2900)
            alone.append(decode.longest(partial(decode.wait_for, len(decode.times) + 12)))
            ids = random.Random(turn).choices(range(3, shape["vocab"]), k=cells * cells + 2)
            text.append(decode.longest(partial(answer, engine, ids, [])))
            start = time.perf_counter()
            shown.append(decode.longest(partial(answer, engine, *image(cells, turn))))
            seconds.append(time.perf_counter() - start)
            decode.end()
    of_text, of_image = common.median(text[1:]), common.median(shown[1:])  # not the first turn
    common.report(
        rows=rows,
        quantization=args.quantization or "none",
        alone_ms=round(1e3 * common.median(alone[1:]), 2),
        text_ms=round(1e3 * of_text, 1),
        image_ms=round(1e3 * of_image, 1),
        image_to_text=round(of_image / of_text, 2),
        first_token_s=round(common.median(seconds[1:]), 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="full")
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--step", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quantization", choices=["wint8", "wint4"], default="")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config_of(shape)))
        for rows in args.rows:
            measure(Path(folder), shape, args, rows)


if __name__ == "__main__":
    main()
