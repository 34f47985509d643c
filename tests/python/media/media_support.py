"""Shared by the media tests: the goldens, their pictures, settings. Skips without the extension."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from typing import Any

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/golden/media"))

from media_pictures import KINDS, MODES, SIZES, Pixels, frames, picture

from headrace.media import MediaProcessor, ModelSettings, family_of

__all__ = ["KINDS", "MODES", "ROOT", "SIZES", "Pixels", "frames", "picture"]

GOLDEN: dict[str, Any] = json.loads(
    (ROOT / "tests/golden/media/media.json").read_text(encoding="utf-8")
)


def model_settings(name: str) -> ModelSettings:
    """A family's, as without files; of small tiles, and nothing drawn on frames."""
    family = family_of("ernie4_5_moe_vl" if name == "ernie4_5_vl" else name)
    image, video = family.image, replace(family.video, draw_on_frames=False)
    if family.image.tile:
        image = replace(image, patch_size=8, tile_merge=2, tile=32, longest_edge=96)
        video = replace(video, patch_size=8, tile_merge=2, tile=32, longest_edge=64)
    return ModelSettings(family, image, video, tokens_per_second=2.0)


def encoded(image: Any, kind: str = "PNG", **more: Any) -> bytes:
    """A file of a Pillow image; more: what Pillow's `save` takes."""
    out = io.BytesIO()
    image.save(out, kind, **more)
    return out.getvalue()


def processor(name: str, **arguments: Any) -> MediaProcessor:
    return MediaProcessor(model_settings(name), **arguments)
