"""What an image costs before its tower runs: decoding a JPEG, resizing, patches; beside Pillow.

    python benchmarks/media.py [--height 1080 --width 1920] [--repeats 15]

One thread's processor time, the best and the median; ours and Pillow's resize take turns on the
same image. The share is of the least time that Qwen2.5-VL-7B's tower could take here: its
operations at the bf16 (or else float32) peak of all cores, measured in the same run.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import statistics
import time
from collections.abc import Callable

from PIL import Image

from common import measure_limits
from headrace.media import MediaItem, MediaLimits, MediaProcessor, ModelSettings, family_of
from headrace.media.pictures import Picture, decode_picture
from headrace.media.sizes import image_size

DEPTH, HIDDEN, INNER, FULL_LAYERS, WINDOW = 32, 1280, 3420, 4, 64  # of the tower


def photo(height: int, width: int) -> Image.Image:
    """Smooth at most places, with some noise, so that it compresses as photos do."""
    coarse = Image.frombytes("RGB", (64, 36), random.Random(1).randbytes(3 * 64 * 36))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def tower_operations(item: MediaItem) -> float:
    rows = item.grid.t * item.grid.h * item.grid.w
    linears = 2 * rows * DEPTH * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER)
    full = 4 * FULL_LAYERS * rows * rows * HIDDEN
    return float(linears + full + 4 * (DEPTH - FULL_LAYERS) * rows * WINDOW * HIDDEN)


def times(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of this thread, the calls by turns; one turn before goes uncounted."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            if turn:
                found[name].append(time.thread_time() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shape", choices=["full", "smoke"], default="full")
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    height, width = (60, 100) if args.shape == "smoke" else (args.height, args.width)
    image = photo(height, width)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    data = out.getvalue()
    family = family_of("qwen2_5_vl")
    processor = MediaProcessor(ModelSettings(family, family.image, family.video))
    limits = MediaLimits()
    item = processor.image(data)
    target = image_size(height, width, family.image.bounds())
    half = (height // 2, width // 2)
    picture = Picture(height, width, image.tobytes())
    found = times(
        {
            "decode the JPEG": lambda: decode_picture(data, limits),
            "resize": lambda: picture.resized(*target, 3),
            "resize, Pillow": lambda: image.resize(target[::-1], Image.Resampling.BICUBIC),
            "to half": lambda: picture.resized(*half, 3),
            "to half, Pillow": lambda: image.resize(half[::-1], Image.Resampling.BICUBIC),
            "patches": item.patches,
            "all, with the key": lambda: processor.image(data).patches(),
        },
        args.repeats,
    )
    print(f"{height} x {width} -> {target[0]} x {target[1]}, {len(data) >> 10} KiB of JPEG")
    for name, seconds in found.items():
        best, median = 1e3 * min(seconds), 1e3 * statistics.median(seconds)
        print(f"{name:20} best {best:8.2f} ms, median {median:8.2f} ms")
    for name in ("resize", "to half"):
        ratio = statistics.median(found[f"{name}, Pillow"]) / statistics.median(found[name])
        print(f"{name}: {ratio:.2f} x Pillow's speed")
    peak = measure_limits(len(os.sched_getaffinity(0)), 0.1)
    least = tower_operations(item) / max(peak.bf16, peak.f32)
    share = statistics.median(found["all, with the key"]) / least
    print(f"all: {100 * share:.2f} % of the tower's least time, {least:.2f} s")


if __name__ == "__main__":
    main()
