"""Grey of 16 bits: by its higher byte, not cut at 255."""

from __future__ import annotations

import io

import pytest

from headrace.media import MediaLimits
from headrace.media.pictures import picture_of

Image = pytest.importorskip("PIL.Image")
SHADES = {0: 0, 255: 0, 256: 1, 5000: 19, 40000: 156, 65535: 255}


@pytest.mark.parametrize("mode", ["I;16", "I", "I;16B", "png"])
def test_grey_of_16_bits(mode: str) -> None:
    image = Image.new("I;16" if mode == "png" else mode, (len(SHADES), 1))
    for place, shade in enumerate(SHADES):
        image.putpixel((place, 0), shade)
    if mode == "png":
        data = io.BytesIO()
        image.save(data, "png")
        image = Image.open(io.BytesIO(data.getvalue()))
        assert image.mode.startswith("I")
    assert list(picture_of(image, MediaLimits()).rgb[::3]) == list(SHADES.values())
