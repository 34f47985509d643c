"""`mm_processor_kwargs` and what an item's own dict may say. A wrong type or name is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.media.settings import Settings, merged
from headrace.quoting import quoted

SAMPLES = ("leading", "middle", "rand")
_BOTH = ("image", "video")

# name -> modalities, the field of Settings or SamplingRule, the kind of value.
_NAMES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "image_min_pixels": (("image",), "min_pixels", "count"),
    "image_max_pixels": (("image",), "max_pixels", "count"),
    "video_min_pixels": (("video",), "min_pixels", "count"),
    "video_max_pixels": (("video",), "max_pixels", "count"),
    "min_pixels": (("image",), "min_pixels", "count"),
    "max_pixels": (("image",), "max_pixels", "count"),
    "video_fps": (("video",), "fps", "rate"),
    "video_min_frames": (("video",), "min_frames", "count"),
    "video_max_frames": (("video",), "max_frames", "count"),
    "video_target_frames": (("video",), "num_frames", "target"),
    "video_frames_sample": (("video",), "frames_sample", "sample"),
    "fps": (("video",), "fps", "rate"),
    "min_frames": (("video",), "min_frames", "count"),
    "max_frames": (("video",), "max_frames", "count"),
    "num_frames": (("video",), "num_frames", "target"),
    "target_frames": (("video",), "num_frames", "target"),
    "frames_sample": (("video",), "frames_sample", "sample"),
    "cap_pixels_per_frame": (("video",), "cap_pixels", "flag"),
    "draw_on_frames": (("video",), "draw_on_frames", "flag"),
    "do_resize": (_BOTH, "do_resize", "flag"),
    "do_image_splitting": (("image",), "do_split", "flag"),
}
_FIXED = {"spatial_conv_size": "merge_size", "temporal_conv_size": "temporal_merge_size"}
ITEM_OPTIONS = ("fps", "min_frames", "max_frames", "target_frames", "num_frames", "frames_sample")


def with_options(base: Settings, modality: str, options: Mapping[str, Any] | None) -> Settings:
    """`base`, changed by those of the options that concern `modality` ("image" or "video").

    `size` is {"shortest_edge": min_pixels, "longest_edge": max_pixels}, of images; so are names
    without `image_` or `video_` that say pixels, while those that say frames are of clips. A
    target of -1 means none; a target takes the place of fps. Raises TypeError for a value of a
    wrong type, ValueError for one out of range, for an unknown name, for two names of one thing,
    and for what the model's weights fix (`spatial_conv_size`, `temporal_conv_size`).
    """
    if options is None:
        return base
    if not isinstance(options, Mapping):
        raise TypeError(f"mm_processor_kwargs must be a dict, got {quoted(options)}")
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name in _FIXED:
            _check_fixed(name, value, base, modality)
        elif name == "do_pan_and_scan":
            if _read(name, value, "flag"):
                raise ValueError("do_pan_and_scan: images are taken whole here; leave it out")
        elif name == "size" and base.square:
            sides = {"height": base.square, "width": base.square}
            if value != sides:
                raise ValueError(f"size is {sides} for this model; got {quoted(value)}")
        elif name == "size":
            for field, given in _read_size(value).items():
                if modality == "image":
                    _put(values, field, given, name)
        elif name not in _NAMES:
            known = ", ".join(sorted([*_NAMES, *_FIXED, "do_pan_and_scan", "size"]))
            raise ValueError(f"mm_processor_kwargs has no {quoted(name)}: it has {known}")
        else:
            modalities, field, kind = _NAMES[name]
            read = _read(name, value, kind)
            if modality in modalities:
                _put(values, field, read, name)
    return merged(base, _applicable(values, base))


def without_synonyms(options: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`options`, less those that say the same of clips as one of an item's `own`."""
    said = {_NAMES[name][1] for name in own if name in _NAMES}
    said |= {"fps", "num_frames"} if said & {"fps", "num_frames"} else set()

    def stays(name: str) -> bool:
        return name not in _NAMES or "video" not in _NAMES[name][0] or _NAMES[name][1] not in said

    return {name: value for name, value in options.items() if stays(name)}


def _put(values: dict[str, Any], field: str, value: Any, name: str) -> None:
    if field in values and values[field] != value:
        raise ValueError(f"{name} {quoted(value)} contradicts another option, {values[field]}")
    values[field] = value


def _applicable(values: dict[str, Any], base: Settings) -> dict[str, Any]:
    rule = base.sampling
    if base.is_fixed and ("min_pixels" in values or "max_pixels" in values):
        what = "are tiled" if base.tile else f"become {base.square} x {base.square} pixels"
        raise ValueError(f"this model's images {what}: min_pixels and max_pixels don't apply")
    if "do_split" in values and not base.tile:
        raise ValueError("do_image_splitting: this model's images are not tiled")
    if "draw_on_frames" in values and (rule is None or rule.rule != "ernie"):
        raise ValueError("draw_on_frames: this model has no times drawn on its frames")
    if values.get("cap_pixels") and not base.cap_tokens:
        raise ValueError("cap_pixels_per_frame: this model has no such cap")
    if "frames_sample" in values and (rule is None or rule.rule != "ernie"):
        raise ValueError("frames_sample: this model samples by a rule of its own")
    if values.get("num_frames", -1) == -1:
        if "num_frames" in values:
            values["num_frames"] = None
    elif values.get("fps", -1) > 0:
        raise ValueError("fps and a target of frames exclude each other: give one")
    if values.get("fps", 1) <= 0:
        if values.get("num_frames") is None:
            raise ValueError(f"fps must be above 0 unless target_frames is given: {values['fps']}")
        del values["fps"]
    if rule is not None and "fps" in values:
        values.setdefault("num_frames", None)  # of what was set before
    if rule is not None:
        least = values.get("min_frames", rule.min_frames)
        most = values.get("max_frames", rule.max_frames)
        if least > most:
            raise ValueError(f"min_frames {least} is above max_frames {most}")
    return values


def _check_fixed(name: str, value: Any, base: Settings, modality: str) -> None:
    _read(name, value, "count")
    own = getattr(base, _FIXED[name])
    if value != own and (name != "temporal_conv_size" or modality == "video"):
        raise ValueError(f"{name} is {own} for this model, whose weights fix it; got {value}")


def _read_size(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or set(value) != {"shortest_edge", "longest_edge"}:
        raise TypeError(
            f"size must be a dict with shortest_edge and longest_edge, got {quoted(value)}"
        )
    return {
        "min_pixels": _read("size.shortest_edge", value["shortest_edge"], "count"),
        "max_pixels": _read("size.longest_edge", value["longest_edge"], "count"),
    }


def _read(name: str, value: Any, kind: str) -> Any:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if kind == "flag":
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, got {quoted(value)}")
    elif kind == "sample":
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a str, got {quoted(value)}")
        if value not in SAMPLES:
            raise ValueError(f"{name} must be one of {SAMPLES}, got {quoted(value)}")
    elif kind == "rate":
        if not is_int and not isinstance(value, float):
            raise TypeError(f"{name} must be a number, got {quoted(value)}")
        if not (-1000 <= value <= 0 or 0.001 <= value <= 1000):
            raise ValueError(f"{name} must be finite and lie in [0.001, 1000], got {quoted(value)}")
        return float(value)
    elif not is_int:
        raise TypeError(f"{name} must be an int, got {quoted(value)}")
    elif not (1 <= value <= 1 << 31 or (kind == "target" and value == -1)):
        raise ValueError(f"{name} must lie in [1, {1 << 31}], got {quoted(value)}")
    return value
