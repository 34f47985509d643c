"""The pictures of the media goldens: drawn the same way by the script and by the tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

# (height, width): odd ones, slivers, one side up and the other down, everyday ones.
SIZES = (
    (1, 1),
    (10, 300),
    (13, 40),
    (42, 70),
    (98, 70),
    (77, 131),
    (120, 160),
    (240, 320),
    (150, 90),
)
KINDS = ("noise", "slope")
MODES = ("RGBA", "LA", "L", "P", "CMYK", "1", "I;16")


def picture(kind: str, height: int, width: int, channels: int = 3) -> Pixels:
    """uint8 [height, width, channels]."""
    if kind == "noise":
        random = np.random.RandomState(height * 1000 + width)
        return random.randint(0, 256, (height, width, channels)).astype(np.uint8)
    y, x, c = np.mgrid[:height, :width, :channels]
    return (255 * (y * (c + 1) + x * (channels - c)) // (channels * (height + width))).astype(
        np.uint8
    )


def frames(count: int, height: int, width: int) -> Pixels:
    """uint8 [count, height, width, 3]."""
    random = np.random.RandomState(count)
    return random.randint(0, 256, (count, height, width, 3)).astype(np.uint8)
