"""Media in requests: content parts of messages, `multimodal_data`, limits on their number."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.media.options import ITEM_OPTIONS
from headrace.media.pictures import is_array, is_pillows
from headrace.options.media import DEFAULT_LIMITS, MODALITIES, MOST_ITEMS
from headrace.quoting import quoted

_TEXT = ("text", "input_text", "refusal")


@dataclass(frozen=True, slots=True)
class MediaPart:
    """One item of a request, not loaded yet: the arguments of MediaProcessor.image and .video.

    source None: the item is known by its uuid.
    """

    modality: str
    source: Any = field(repr=False)
    uuid: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


def read_part(part: Any) -> MediaPart | None:
    """A content part of a message; None for text.

    {"type": "image_url", "image_url": {"url": ...}, "uuid": ...}, the same with "video"; and
    {"type": "image", "image": ...} with anything that MediaProcessor takes. `image_url` may be the
    address itself, and null beside a uuid. Raises TypeError, ValueError.
    """
    if not isinstance(part, Mapping):
        raise TypeError(f"a content part must be a dict, got {quoted(part)}")
    kind = part.get("type")
    if kind in _TEXT:
        return None
    if not isinstance(kind, str) or kind.removesuffix("_url") not in MODALITIES:
        raise ValueError(f"Unknown content part type: {quoted(kind)}")
    modality = kind.removesuffix("_url")
    known = {"type", kind, "uuid"} | (set(ITEM_OPTIONS) if modality == "video" else set())
    _check_keys(part, known, f"a part of the type {kind}")
    value = part.get(kind)
    if kind.endswith("_url"):
        value = _address(kind, value)
    if value is None and part.get("uuid") is None:
        raise ValueError(f"Both {kind} and uuid are missing")
    options = {name: part[name] for name in ITEM_OPTIONS if name in part}
    return _made(modality, value, _uuid(part.get("uuid")), options)


def read_multimodal_data(
    data: Any, name: str = "multimodal_data", uuids: Any = None
) -> list[MediaPart]:
    """{"image": [...], "video": [...]}: images first. A single item needs no list; a clip may be
    {"video": source, "max_frames": 30, ...}, or a pair of frames and a dict with their "fps".

    uuids: a name or None for each item, in the same form. Raises TypeError, ValueError."""
    given = {modality: _items(data, modality, name) for modality in MODALITIES}
    named = {modality: _items(uuids, modality, "multi_modal_uuids") for modality in MODALITIES}
    parts = []
    for modality in MODALITIES:
        items = given[modality]
        names = named[modality] or [None] * len(items)
        if items and len(names) != len(items):
            raise ValueError(
                f"multi_modal_uuids has {len(names)} names of the kind {modality} for "
                f"{len(items)} items"
            )
        for item, uuid in zip(items or [None] * len(names), names, strict=True):
            if item is None and uuid is None:
                raise ValueError(f"{name}: an item of the kind {modality} is None, without uuid")
            parts.append(_made(modality, item, _uuid(uuid), {}))
    return parts


def check_counts(parts: Iterable[MediaPart], limits: Mapping[str, int] | None = None) -> None:
    """limits: `limit_mm_per_prompt`; one image and one video where it says nothing. Raises
    ValueError for more items of a modality."""
    bounds = {**DEFAULT_LIMITS, **(limits or {})}
    for modality, count in Counter(part.modality for part in parts).items():
        if count > bounds[modality]:
            raise ValueError(
                f"Too many {modality} items in prompt, got {count} but limit is {bounds[modality]}"
            )


def _items(data: Any, modality: str, name: str) -> list[Any]:
    """What a dict by modality has of one."""
    if data is None:
        return []
    if not isinstance(data, Mapping):
        raise TypeError(f"{name} must be a dict, got {quoted(data)}")
    _check_keys(data, set(MODALITIES), name)
    items = data.get(modality)
    if items is None:
        return []
    if (
        not isinstance(items, (list, tuple))
        or _is_clip(items)
        or (modality == "video" and _is_frames(items))
    ):
        items = [items]
    if len(items) > MOST_ITEMS:
        raise ValueError(f"{name} has {len(items)} items, more than {MOST_ITEMS}")
    return list(items)


def _made(modality: str, value: Any, uuid: str | None, options: dict[str, Any]) -> MediaPart:
    if isinstance(value, Mapping):
        if modality != "video" or "video" not in value:
            raise TypeError(f"{quoted(value)} is no {modality}: a dict needs the key 'video'")
        _check_keys(value, {"video", *ITEM_OPTIONS}, "a video's dict")
        options = {**options, **{k: v for k, v in value.items() if k != "video"}}
        value = value["video"]
    elif modality == "video" and _is_clip(value):
        value, facts = value
        if facts.get("fps") is not None:
            options = {**options, "fps": facts["fps"]}
    return MediaPart(modality, value, uuid, options)


def _address(kind: str, value: Any) -> str | None:
    if isinstance(value, Mapping):
        _check_keys(value, {"url", "detail"}, kind)
        if value.get("detail", "auto") != "auto":
            warnings.warn(
                f"{kind}: detail {quoted(value['detail'])} has no effect; use mm_processor_kwargs",
                stacklevel=4,
            )
        value = value.get("url")
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{kind} must have an address of type str, got {quoted(value)}")
    return value or None


def _uuid(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"uuid must be a str, got {quoted(value)}")
    return value


def _is_frames(items: Any) -> bool:
    """Whether a list is one clip's frames, images or arrays of one, rather than clips."""
    return bool(items) and all(
        is_pillows(item) or (is_array(item) and memoryview(item).ndim == 3) for item in items
    )


def _is_clip(value: Any) -> bool:
    """vLLM's pair: frames, and what is known of them, of which the rate matters here."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)


def _check_keys(data: Mapping[str, Any], known: set[str], name: str) -> None:
    unknown = sorted(str(key) for key in data if key not in known)
    if unknown:
        raise ValueError(f"{name} has no {quoted(unknown[0])}: it has {', '.join(sorted(known))}")
