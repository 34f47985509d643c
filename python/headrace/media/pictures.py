"""From encoded images, Pillow's images and arrays to RGB bytes."""

from __future__ import annotations

import contextlib
import importlib
import io
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace import _core
from headrace.errors import MediaError
from headrace.media.jpeg_scans import check_scans
from headrace.media.limits import MediaLimits
from headrace.quoting import quoted

# Pillow's names. Whatever else Pillow reads is refused: PostScript runs a program, and TIFF, with
# its float pixels and pages, logs what it stumbles over. ICO decodes what it holds, of any size, as
# it is opened.
FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "DIB", "PPM", "AVIF")
_LEAST_READS = 1 << 14
_READ_BYTES = 256  # per read of an image, on average; of animations, which are read thrice, a few
# Decoders that Pillow has in Python: of text, of levels that aren't 255, and of runs.
_SLOW_CODECS = ("ppm_plain", "ppm", "bmp_rle")
_MOST_SLOW = 1 << 18  # bytes, and pixels


_WORK_BYTES = 8  # for a pixel: as Pillow has it, and RGB
_MOST_IN_WORK = 1 << 30
_STRIP_PIXELS = 1 << 20


class InWork:
    """Bytes of the images that are being decoded, of all requests together; first come, first
    served, so that a large one has its turn. Thread safe."""

    def __init__(self, most: int) -> None:
        self._changed = threading.Condition()
        self._most = self._left = most
        self._turns: deque[object] = deque()

    @contextlib.contextmanager
    def share(self, count: int) -> Iterator[None]:
        """Waits until there is room; one that is too large for it is alone in the block."""
        taken, turn = min(count, self._most), object()
        with self._changed:
            self._turns.append(turn)
            try:
                self._changed.wait_for(lambda: self._turns[0] is turn and taken <= self._left)
                self._left -= taken
            finally:
                self._turns.remove(turn)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._left += taken
                self._changed.notify_all()


_in_work = InWork(_MOST_IN_WORK)


class EncodedBytes(io.BytesIO):
    """What Pillow reads an image from: at most one read for so many bytes, beside the first 16384.

    Pillow walks through markers, chunks and runs in Python, a read or two for each. Files of empty
    ones would keep it, and the interpreter's lock, for seconds per megabyte. Raises MediaError.
    """

    def __init__(self, data: bytes, read_bytes: int = _READ_BYTES) -> None:
        super().__init__(data)
        self._reads = _LEAST_READS + len(data) // read_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads -= 1
        if self._reads < 0:
            raise MediaError("it has too many small pieces: save it anew, as PNG or JPEG")
        return super().read(size)


@dataclass(frozen=True, slots=True)
class Picture:
    """RGB bytes, rows from the top, without padding."""

    height: int
    width: int
    rgb: bytes

    def resized(self, height: int, width: int, resample: int) -> Picture:
        """By our own arithmetic, whatever Pillow is installed. Releases the GIL."""
        if (height, width) == (self.height, self.width):
            return self
        rgb = _core.resize_rgb(self.rgb, self.height, self.width, height, width, resample)
        return Picture(height, width, rgb)

    def crop(self, top: int, left: int, height: int, width: int) -> Picture:
        pitch, start = 3 * self.width, 3 * left
        rows = range(top, top + height)
        parts = [self.rgb[r * pitch + start : r * pitch + start + 3 * width] for r in rows]
        return Picture(height, width, b"".join(parts))


def pillow(module: str = "Image") -> Any:
    """A module of Pillow. Raises ImportError that says how to install it."""
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise ImportError(
            'images need Pillow: pip install "headrace[vision]" (arrays of uint8 do not)'
        ) from error


def decode_picture(data: bytes, limits: MediaLimits) -> Picture:
    """An encoded image, turned the way its EXIF data asks for, transparency on white.

    Of an animated one the first frame. Raises MediaError for what Pillow can't read, for a
    truncated file, for a format that is not in FORMATS, and for a size above the limits, which is
    looked at before anything is decoded.
    """
    limits.check_bytes(len(data), "image")
    if not data:
        raise MediaError("it has no data")
    image_of = pillow()
    image_of.init()
    known = [name for name in FORMATS if name in image_of.OPEN]
    # Decoders meet hostile bytes here, and raise whatever they stumble over.
    try:
        with image_of.open(EncodedBytes(data), formats=known) as image:
            limits.check_size(image.height, image.width)
            if image.format in ("JPEG", "MPO"):
                check_scans(data)
            _check_codec(image, len(data))
            with _in_work.share(image.height * image.width * _WORK_BYTES):
                image.load()
                return picture_of(pillow("ImageOps").exif_transpose(image), limits)
    except MediaError:
        raise
    except image_of.UnidentifiedImageError:
        raise MediaError(f"it is no image of a known format ({', '.join(known)})") from None
    except image_of.DecompressionBombError as error:
        raise MediaError(f"it is too large to decode: {error}") from None
    except Exception as error:
        raise MediaError(f"it can't be decoded: {quoted(str(error))}") from error


def _check_codec(image: Any, count: int) -> None:
    slow = any(tile[0] in _SLOW_CODECS for tile in image.tile)
    if slow and max(count, image.height * image.width) > _MOST_SLOW:
        raise MediaError(
            f"a {image.format} of this kind may have {_MOST_SLOW} bytes and pixels: save it anew, "
            "as PNG or JPEG"
        )


def picture_of(image: Any, limits: MediaLimits) -> Picture:
    """One of Pillow's images: its pixels as they are, transparency on white, grey of
    16 bits by its higher byte, other modes by Pillow's own conversion to RGB.

    Raises MediaError for one of floats."""
    limits.check_size(image.height, image.width)
    if image.mode == "F":
        raise MediaError("it has float pixels: convert it to 8 bits a channel")
    try:
        data = _rgb_bytes(image)
    except Exception as error:  # a lazy image decodes here
        raise MediaError(f"it can't be decoded: {quoted(str(error))}") from error
    if len(data) != 3 * image.height * image.width:
        raise MediaError("its pixels don't fit its size")
    return Picture(image.height, image.width, data)


def _rgb_bytes(image: Any) -> bytes:
    """In strips: whole ones would be four copies beside each other."""
    image.load()
    clear = "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info
    rows = max(1, _STRIP_PIXELS // image.width)
    out = io.BytesIO()  # gives its bytes without another copy
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(image.height, top + rows)))
        if strip.mode == "I" or strip.mode.startswith("I;16"):
            strip = _grey_of(strip)
        elif clear:
            seen = strip.convert("RGBA")
            white = pillow().new("RGBA", seen.size, (255, 255, 255, 255))
            strip = pillow().alpha_composite(white, seen)
        out.write((strip if strip.mode == "RGB" else strip.convert("RGB")).tobytes())
    return out.getvalue()


def _grey_of(image: Any) -> Any:
    """Shades of 16 bits in 8: Pillow's own conversion takes all above 255 for white."""
    grey = image.convert("I").point(lambda shade: shade * (1 / 256)).convert("L")
    grey.info.pop("transparency", None)  # a shade of 16 bits
    return grey


def is_pillows(value: Any) -> bool:
    """Whether it is one of Pillow's images; Pillow is not imported for that."""
    return hasattr(value, "getbands") and hasattr(value, "convert")


def is_array(value: Any) -> bool:
    """Whether it is an array: numpy's, or anything with a buffer of more than one dimension."""
    if is_pillows(value):
        return False
    if hasattr(value, "__array_interface__"):
        return True
    if isinstance(value, (str, bytes, bytearray)):
        return False
    try:
        return memoryview(value).ndim > 1
    except TypeError:
        return False


def pictures_of_array(array: Any, limits: MediaLimits, dimensions: int) -> list[Picture]:
    """uint8 [height, width, 3] or [height, width] (grey) as one picture (`dimensions` 3), or
    [frames, height, width, 3] as many (4). Raises MediaError for other types and shapes."""
    wanted = "[height, width, 3]" if dimensions == 3 else "[frames, height, width, 3]"
    try:
        view = memoryview(array)
    except (TypeError, ValueError, BufferError) as error:
        raise MediaError(f"the array has no buffer of uint8 {wanted}: {error}") from None
    shape = view.shape or ()
    if view.format != "B":
        raise MediaError(
            f"the array must have the type uint8, values 0 to 255, and has {quoted(view.format)}"
        )
    is_grey = dimensions == 3 and len(shape) == 2
    if not is_grey and (len(shape) != dimensions or shape[-1] != 3):
        raise MediaError(f"the array must have the shape {wanted}, and has {tuple(shape)}")
    height, width = shape[dimensions - 3 : dimensions - 1]
    frames = shape[0] if dimensions == 4 else 1
    if frames > limits.max_frames:
        raise MediaError(f"it has {frames} frames, more than max_frames ({limits.max_frames})")
    if frames < 1:
        raise MediaError("it has no frames")
    limits.check_size(height, width)
    limits.check_given(frames, height, width)
    data: bytes | bytearray = view.tobytes()
    if is_grey:
        levels, data = data, bytearray(3 * len(data))
        for channel in range(3):
            data[channel::3] = levels
    size = 3 * height * width
    return [Picture(height, width, bytes(data[i * size : (i + 1) * size])) for i in range(frames)]
