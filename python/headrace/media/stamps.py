"""Times of a clip's frames, drawn on them or as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.errors import MediaError
from headrace.media.pictures import Picture, pillow

_SMALL = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def clock(seconds: float) -> str:
    """ "HH:MM:SS.ss", as ERNIE-VL's frames have it: the last part rounds, up to 60.00."""
    hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
    return f"{hours:02d}:{minutes:02d}:{seconds % 60:05.2f}"


class Stamper:
    """Draws "time: HH:MM:SS.ss" in the top left corner of frames, in a font that the model brings.

    Black with a white outline, a tenth of the shorter side high. The pixels depend on Pillow and on
    its FreeType. Raises MediaError without a font: the model was trained with the times in sight.
    """

    def __init__(self, font: Path | None) -> None:
        if font is None:
            raise MediaError(
                "this model's clips have their times drawn on the frames, and its folder has no "
                'font: put Roboto-Regular.ttf there, or pass {"draw_on_frames": False}'
            )
        self._path = font
        self._fonts: dict[int, Any] = {}

    def draw(self, picture: Picture, seconds: float) -> Picture:
        size = int(min(picture.width, picture.height) * 0.1)
        if size < 1:
            raise MediaError("its frames are too small to draw times on them")
        if size not in self._fonts:
            try:
                self._fonts[size] = pillow("ImageFont").truetype(str(self._path), size)
            except OSError as error:
                raise MediaError(f"the font {self._path} can't be read: {error}") from None
        image = pillow().frombytes("RGB", (picture.width, picture.height), picture.rgb)
        pillow("ImageDraw").Draw(image).text(
            (0, 0),
            f"time: {clock(seconds)}",
            font=self._fonts[size],
            fill=(0, 0, 0),
            stroke_width=int(size * 0.1),
            stroke_fill=(255, 255, 255),
        )
        return Picture(picture.height, picture.width, image.tobytes())


def number_in_words(number: int) -> str:
    """English, for 0 to 999: "one hundred and five"."""
    if not 0 <= number <= 999:
        raise MediaError(f"this model's prompts tell of at most 999 frames, not of {number}")
    hundreds, rest = divmod(number, 100)
    text = ""
    if rest < 20:
        text = _SMALL[rest] if rest or not hundreds else ""
    else:
        text = _TENS[rest // 10 - 2] + (f"-{_SMALL[rest % 10]}" if rest % 10 else "")
    if not hundreds:
        return text
    return f"{_SMALL[hundreds]} hundred" + (f" and {text}" if text else "")
