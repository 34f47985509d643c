"""The settings of a model folder: its family's, changed by what its files say.

Files, from the strongest: processor_config.json (`image_processor`, `video_processor`),
video_preprocessor_config.json (clips), preprocessor_config.json (images; clips take from it what
isn't a size). config.json has the tower's patch sizes, which must agree.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import MediaError, TokenizerError
from headrace.media.families import Family, family_of
from headrace.media.settings import Settings, merged
from headrace.quoting import quoted
from headrace.text.model_files import read_json

_TOKENS_PER_SECOND = 4.0  # where a config.json of Qwen2.5-VL has none


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How a model takes images and clips.

    tokens_per_second: of positions over time (Qwen2.5-VL).
    font: the file that times are drawn with (ERNIE-VL), if the model's folder has it.
    """

    family: Family
    image: Settings
    video: Settings
    tokens_per_second: float = 1.0
    font: Path | None = None


def read_model_settings(folder: str | os.PathLike[str]) -> ModelSettings:
    """Raises UnsupportedError for a model without images, MediaError for a file that is no JSON or
    says what can't be; the message names the file and the key."""
    path = Path(folder)
    config = _read(path / "config.json")
    family = family_of(str(config.get("model_type")))
    image, video = family.image, family.video
    general = _read(path / "preprocessor_config.json")
    nested = _read(path / "processor_config.json")
    of_images = (
        ("preprocessor_config.json", general),
        ("processor_config.json", _object(nested.get("image_processor"))),
    )
    for source, data in of_images:
        image = _changed(source, data, image)
    without_sizes = {k: v for k, v in general.items() if k not in ("size", *_PIXELS)}
    for source, data in (
        ("preprocessor_config.json", without_sizes),
        ("video_preprocessor_config.json", _read(path / "video_preprocessor_config.json")),
        ("processor_config.json", _object(nested.get("video_processor"))),
    ):
        video = _changed(source, data, video)
        font = data.get("font", "Roboto-Regular.ttf")
    vision = _object(config.get("vision_config"))
    if family.image.tile:
        image, video = _tile_sizes(image, config, vision), _tile_sizes(video, config, vision)
    if family.image.square:
        image = video = _square_sizes(image, config, vision)
        for source, data in of_images:
            _check_size(source, data.get("size"), image.square)
    _check_tower(image, vision)
    _check_tower(video, vision)
    try:
        rate = _number("tokens_per_second", vision.get("tokens_per_second", _TOKENS_PER_SECOND))
    except ValueError as error:
        raise MediaError(f"config.json: {error}") from None
    return ModelSettings(
        family,
        image,
        video,
        rate if family.video_time == "seconds" else 1.0,
        _font(path, font),
    )


_PIXELS = ("min_pixels", "max_pixels")


def _changed(source: str, data: Mapping[str, Any], base: Settings) -> Settings:
    values: dict[str, Any] = {}
    for key, value in data.items():
        if value is None or key not in _READERS:
            continue
        try:
            values.update(_READERS[key](value, base))
        except (TypeError, ValueError, OverflowError) as error:
            raise MediaError(f"{source}: {key} is {quoted(value)}: {error}") from None
    try:
        return merged(base, values)
    except ValueError as error:
        raise MediaError(f"{source}: {error}") from None


def _tile_sizes(base: Settings, config: Mapping[str, Any], vision: Mapping[str, Any]) -> Settings:
    """The rows of a tile follow from config.json alone."""
    try:
        return merged(
            base,
            {
                "patch_size": _side(vision.get("patch_size", base.patch_size)),
                "tile_merge": _count(config.get("scale_factor", base.tile_merge)),
                "tile": _count(vision.get("image_size", base.tile)),
            },
        )
    except (TypeError, ValueError) as error:
        raise MediaError(f"config.json: {error}") from None


def _square_sizes(base: Settings, config: Mapping[str, Any], vision: Mapping[str, Any]) -> Settings:
    """An image has mm_tokens_per_image rows, each of a square of patches (Gemma 3)."""
    try:
        patch = _side(vision.get("patch_size", 16))
        square = _count(vision.get("image_size", 224))
        rows = _count(config.get("mm_tokens_per_image", 256))
        merge = max(square // patch // math.isqrt(rows), 1)
        return merged(base, {"patch_size": patch, "merge_size": merge, "square": square})
    except (TypeError, ValueError) as error:
        raise MediaError(f"config.json: {error}") from None


def _check_size(source: str, size: Any, square: int) -> None:
    """Of images that become squares: what the processor's file says, if anything."""
    given = [side for key in ("height", "width") if (side := _object(size).get(key)) is not None]
    if any(side != square for side in given):
        raise MediaError(
            f"{source}: size is {quoted(size)}, but vision_config.image_size of config.json is "
            f"{square}"
        )


def _check_tower(settings: Settings, vision: Mapping[str, Any]) -> None:
    for key, own in (
        ("patch_size", settings.patch_size),
        ("spatial_merge_size", settings.merge_size),
        ("temporal_patch_size", settings.temporal_patch_size),
    ):
        value = vision.get(key)
        if value is not None and value not in (own, [own], [own, own]):
            raise MediaError(
                f"config.json: vision_config.{key} is {quoted(value)}, the processor's is {own}"
            )


def _font(folder: Path, name: Any) -> Path | None:
    if not isinstance(name, str) or name != Path(name).name:
        return None
    file = folder / name
    return file if file.is_file() else None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return read_json(path)
    except TokenizerError as error:
        raise MediaError(str(error)) from None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 31:
        raise ValueError("a whole number of at least 1 is needed")
    return value


def _side(value: Any) -> int:
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]
    return _count(value)


def _number(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not (1e-6 <= value <= 1e6):
        raise ValueError(f"{name} must be a number in [1e-6, 1e6], got {quoted(value)}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false is needed")
    return value


def _three(value: Any) -> tuple[float, ...]:
    items = value if isinstance(value, list) else [value] * 3
    if len(items) != 3:
        raise ValueError("three numbers are needed")
    for item in items:
        if not isinstance(item, (int, float)) or isinstance(item, bool):
            raise ValueError("three numbers are needed")
    return tuple(float(item) for item in items)


def _size(value: Any, base: Settings) -> dict[str, Any]:
    """{"shortest_edge", "longest_edge"}: numbers of pixels, but for tiled images."""
    edges = _object(value)
    if base.square:
        return {}
    if base.tile:
        return {"longest_edge": _count(edges.get("longest_edge"))}
    values = {}
    for field, key in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        given = edges.get(key, edges.get(field))
        if given is not None:
            values[field] = _count(given)
    return values


def _sampling(value: Any, base: Settings) -> dict[str, Any]:
    """SmolVLM's `video_sampling`."""
    if base.sampling is None:
        return {}
    given = _object(value)
    values: dict[str, Any] = {}
    if given.get("max_frames") is not None:
        values["max_frames"] = _count(given["max_frames"])
    if given.get("fps") is not None:
        values["fps"] = _number("fps", given["fps"])
    if given.get("video_size") is not None:
        values |= _size(given["video_size"], base)
    return values


def _refuse_cropping(value: Any) -> dict[str, Any]:
    if value is not False:
        raise ValueError("images are not cropped here")
    return {}


def _of_clips(field: str, read: Callable[[Any], Any]) -> Callable[[Any, Settings], dict[str, Any]]:
    return lambda value, base: {field: read(value)} if base.sampling is not None else {}


def _plain(field: str, read: Callable[[Any], Any]) -> Callable[[Any, Settings], dict[str, Any]]:
    return lambda value, base: {field: read(value)}


def _free(field: str, read: Callable[[Any], Any]) -> Callable[[Any, Settings], dict[str, Any]]:
    return lambda value, base: {} if base.is_fixed else {field: read(value)}


_READERS: dict[str, Callable[[Any, Settings], dict[str, Any]]] = {
    "image_mean": _plain("mean", _three),
    "image_std": _plain("std", _three),
    "rescale_factor": _plain("rescale_factor", lambda value: _number("rescale_factor", value)),
    "resample": _plain("resample", _count),
    "do_resize": _plain("do_resize", _flag),
    "do_rescale": _plain("do_rescale", _flag),
    "do_normalize": _plain("do_normalize", _flag),
    "do_center_crop": lambda value, base: _refuse_cropping(value),
    "do_pan_and_scan": lambda value, base: _refuse_cropping(value),
    "patch_size": _free("patch_size", _side),
    "merge_size": _free("merge_size", _count),
    # ERNIE's files give its clips 2 here, which is what merges frames behind the tower.
    "temporal_patch_size": lambda value, base: (
        {} if base.tile or base.temporal_patch_size == 1 else {"temporal_patch_size": _side(value)}
    ),
    "min_pixels": _free("min_pixels", _count),
    "max_pixels": _free("max_pixels", _count),
    "size": _size,
    "do_image_splitting": lambda value, base: (
        {"do_split": _flag(value)} if base.tile and base.sampling is None else {}
    ),
    "video_sampling": _sampling,
    "fps": _of_clips("fps", lambda value: _number("fps", value)),
    "num_frames": _of_clips("num_frames", _count),
    "min_frames": _of_clips("min_frames", _count),
    "max_frames": _of_clips("max_frames", _count),
    "draw_on_frames": lambda value, base: (
        {"draw_on_frames": _flag(value)} if base.sampling and base.sampling.rule == "ernie" else {}
    ),
}
