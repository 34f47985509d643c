"""Which frames of a clip are used, by each family's rule."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from headrace.errors import MediaError

_MOST_FRAMES = 1 << 20  # of a rule that uses frames more than once; limits of items come later


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """How a family samples, and what callers may change of it.

    rule: "qwen2", "qwen3", "ernie" or "smolvlm".
    fps: frames a second; None: all of them (qwen2 alone).
    num_frames: how many, instead of fps.
    frames_sample: "leading", "middle" or "rand", of each stretch of a clip (ernie alone).
    """

    rule: str
    fps: float | None
    min_frames: int
    max_frames: int
    num_frames: int | None = None
    frames_sample: str = "leading"


def frame_indices(rule: SamplingRule, total: int, fps: float) -> list[int]:
    """The frames to use, in order, of `total` >= 1 at `fps` > 0 frames a second.

    Raises MediaError if a rule asks for more frames than there are.
    """
    if total < 1:
        raise MediaError("it has no frames")
    indices = _RULES[rule.rule](rule, total, fps)
    if not indices:
        raise MediaError(f"no frame of its {total} is used: raise fps or the number of frames")
    return indices


def _qwen2(rule: SamplingRule, total: int, fps: float) -> list[int]:
    if rule.num_frames is not None:
        count = round(rule.num_frames / 2) * 2
    elif rule.fps is None:
        return list(range(total))
    else:
        most = min(rule.max_frames, total) // 2 * 2
        wanted = min(max(total / fps * rule.fps, rule.min_frames), most, total)
        count = math.floor(wanted / 2) * 2
    if not 0 < count <= total:
        raise MediaError(
            f"{count} of its {total} frames are asked for: this model takes an even number that is "
            "there"
        )
    return _steps(total, total / count)


def _qwen3(rule: SamplingRule, total: int, fps: float) -> list[int]:
    if rule.num_frames is not None:
        count = rule.num_frames
    else:
        count = total if rule.fps is None else int(total / fps * rule.fps)
        count = min(max(count, rule.min_frames), rule.max_frames, total)
    if count > _MOST_FRAMES:
        raise MediaError(f"{count} frames are asked for: {_MOST_FRAMES} are the most")
    return [round(value) for value in _linspace(0, total - 1, count)]


def _ernie(rule: SamplingRule, total: int, fps: float) -> list[int]:
    duration = total / fps
    target = rule.num_frames
    if target is None:
        assert rule.fps is not None
        count = int(duration * rule.fps)
        if count < rule.min_frames:
            target = rule.min_frames
        elif count > rule.max_frames:
            target = rule.max_frames
    if target is not None:
        return _stretches(rule.frames_sample, total, min(target, total))
    assert rule.fps is not None
    step = 1 / rule.fps
    start, end = (
        (0.0, duration) if rule.frames_sample == "leading" else (step / 2, duration + step / 2)
    )
    seconds = [start + step * i for i in range(math.ceil((end - start) / step))]
    if rule.frames_sample == "rand":
        draw = random.Random(total)
        seconds = [max(second + (draw.random() - 0.5) * step, 0.0) for second in seconds]
    return [index for second in seconds if (index := round(second * fps)) < total]


def _stretches(sample: str, total: int, count: int) -> list[int]:
    """One frame of each of `count` stretches."""
    edges = [int(value) for value in _linspace(0, total, count + 1)]
    found = []
    draw = random.Random(total)
    for low, following in pairwise(edges):
        high = following - 1
        if sample == "leading":
            found.append(low)
        elif sample == "middle":
            found.append((low + high) // 2)
        else:
            found.append(draw.randint(low, high))
    return found


def _smolvlm(rule: SamplingRule, total: int, fps: float) -> list[int]:
    duration = total / fps
    most = rule.num_frames or rule.max_frames
    rate = rule.fps or 1.0
    count = max(min(round(rate * duration), most), 1)
    first, last = 0, total - 1
    if duration - 2 > most * rate:  # a second is left out at both ends of a long clip
        first, last = int(fps), min(int(total - fps), total - 1)
        if first >= last:
            first, last = 0, total - 1
    return sorted({int(value) for value in _linspace(first, last, count)})


def _steps(total: int, step: float) -> list[int]:
    return [int(i * step) for i in range(math.ceil(total / step)) if int(i * step) < total]


def _linspace(first: int, last: int, count: int) -> list[float]:
    if count < 2:
        return [float(first)] * count
    step = (last - first) / (count - 1)
    return [first + i * step for i in range(count - 1)] + [float(last)]


_RULES: dict[str, Callable[[SamplingRule, int, float], list[int]]] = {
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "ernie": _ernie,
    "smolvlm": _smolvlm,
}
