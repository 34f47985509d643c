"""Clips: frames that a caller has, animated images (Pillow), files of video (PyAV).

Frames are decoded one by one and handed on at once, so that a clip's frames never lie in memory in
their own size.
"""

from __future__ import annotations

import importlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from headrace.errors import MediaError
from headrace.media.limits import MediaLimits
from headrace.media.pictures import EncodedBytes, Picture, picture_of, pillow
from headrace.quoting import quoted

_ANIMATED = ("GIF", "WEBP", "PNG")
_READ_BYTES = 16  # a GIF comes in pieces of 255 bytes, which are gone through two or three times
# FFmpeg's demuxers that are tried. Playlists, which name other files and addresses, are not among
# them, and no protocol is allowed: nothing but the bytes at hand is read.
_DEMUXERS = "mov,mp4,matroska,webm,avi,mpeg,mpegts,ogg,flv,asf,m4v"
_OPTIONS = {"format_whitelist": _DEMUXERS, "protocol_whitelist": "none"}


class ShorterClipError(MediaError):
    """Fewer frames can be decoded than packets were counted; `frames` says how many."""

    def __init__(self, frames: int) -> None:
        super().__init__(f"only {frames} of its frames can be decoded")
        self.frames = frames


Choose = Callable[[int, float], list[int]]
"""From the number of frames and their rate to the frames to use, ascending."""


@dataclass(frozen=True, slots=True)
class Clip:
    """What is used of a clip.

    frames: in order; may be read once. count: how many there are. indices: which of the clip's
    frames they are. fps, total: of the clip.
    """

    frames: Iterator[Picture]
    indices: Sequence[int]
    fps: float
    total: int

    @property
    def count(self) -> int:
        return len(self.indices)

    @property
    def duration(self) -> float:
        return self.total / self.fps


def given_frames(frames: Sequence[Picture], fps: float) -> Clip:
    """Frames that were sampled already; `fps` of them belong to a second."""
    return Clip(iter(frames), range(len(frames)), fps, len(frames))


def decode_clip(
    data: bytes,
    limits: MediaLimits,
    choose: Choose,
    total: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> Clip:
    """The frames that `choose` picks of an animated GIF, WebP or PNG, or of a video file.

    total: the number of frames, if it is known. A container's own word is not taken for it: its
    packets are counted. Where fewer frames come of them, reading the clip's frames raises
    ShorterClipError with their number, to begin anew with. check: called at each frame; what it
    raises ends it. Raises MediaError, there too, and ImportError where Pillow or PyAV is missing.
    """
    limits.check_bytes(len(data), "video")
    if not data:
        raise MediaError("it has no data")
    if data[:6] in (b"GIF87a", b"GIF89a") or data[:8] == b"\x89PNG\r\n\x1a\n":
        return _animation(data, limits, choose, check)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _animation(data, limits, choose, check)
    return _video(data, limits, choose, total, check)


def _animation(data: bytes, limits: MediaLimits, choose: Choose, check: Callable[[], None]) -> Clip:
    image_of = pillow()
    try:
        image = image_of.open(EncodedBytes(data, _READ_BYTES), formats=_ANIMATED)
        limits.check_size(image.height, image.width)
        milliseconds = 0.0
        total = 0
        # Not n_frames, for which a GIF is read to its end; and each frame may make a GIF larger.
        while _has_frame(image, total):
            check()
            limits.check_size(image.height, image.width)
            limits.check_clip(total + 1, image.height, image.width, 1000.0)
            image.load()  # a WebP tells a frame's duration then
            milliseconds += float(image.info.get("duration", 0) or 100)
            total += 1
        fps = 1000 * total / max(milliseconds, 1.0)
        limits.check_clip(total, image.height, image.width, fps)
    except MediaError:
        raise
    except Exception as error:
        raise MediaError(f"it can't be decoded: {quoted(str(error))}") from error
    indices = _chosen(choose, total, fps, limits)

    def frames() -> Iterator[Picture]:
        try:
            for number in indices:
                check()
                image.seek(number)
                yield picture_of(image, limits)
        except MediaError:
            raise
        except Exception as error:
            raise MediaError(f"it can't be decoded: {quoted(str(error))}") from error

    return Clip(frames(), indices, fps, total)


def _has_frame(image: Any, number: int) -> bool:
    """Goes there. Decodes the frame before, if that hasn't been done."""
    try:
        image.seek(number)
    except EOFError:
        return False
    return True


def _video(
    data: bytes,
    limits: MediaLimits,
    choose: Choose,
    total: int | None,
    check: Callable[[], None],
) -> Clip:
    with closing(_Reader(data, limits, check)) as reader:
        fps = reader.fps
        if total is None:
            total = reader.count_packets()
    indices = _chosen(choose, total, fps, limits)
    return Clip(_picked(data, limits, indices, check), indices, fps, total)


def _picked(
    data: bytes, limits: MediaLimits, indices: Sequence[int], check: Callable[[], None]
) -> Iterator[Picture]:
    repeats = Counter(indices)
    count = 0
    with closing(_Reader(data, limits, check)) as reader:
        for number, frame in enumerate(reader.frames()):
            count += 1
            if number in repeats:
                picture = reader.picture(frame)
                yield from [picture] * repeats[number]
            if number >= indices[-1]:
                return
    raise ShorterClipError(count)


class _Reader:
    """An open container with one video stream."""

    def __init__(self, data: bytes, limits: MediaLimits, check: Callable[[], None]) -> None:
        self._limits = limits
        self._check_wanted = check
        self._av = _pyav()
        try:
            self._container = self._av.open(io.BytesIO(data), mode="r", options=_OPTIONS)
        except Exception as error:
            raise MediaError(f"it is no video that can be read: {quoted(str(error))}") from None
        try:
            self._check()
        except MediaError:
            self._container.close()
            raise
        except Exception as error:
            self._container.close()
            raise MediaError(f"it is no video that can be read: {quoted(str(error))}") from None

    def _check(self) -> None:
        if not self._container.streams.video:
            raise MediaError("it has no video stream")
        self._stream = self._container.streams.video[0]
        if self._stream.codec_context is None:
            raise MediaError("its video stream has an unknown codec")
        self._stream.thread_type = "NONE"
        self._limits.check_size(self._stream.height, self._stream.width)
        rate = self._stream.average_rate
        self.fps = float(rate) if rate else 0.0
        if not 0.001 <= self.fps <= 1000:
            raise MediaError(f"its frame rate is {self.fps}: it must lie in [0.001, 1000]")

    def count_packets(self) -> int:
        """Reads the container to its end, without decoding."""
        count = 0
        try:
            for packet in self._container.demux(self._stream):
                count += packet.size > 0
                self._check_count(count)
        except MediaError:
            raise
        except Exception as error:
            raise MediaError(f"it is damaged: {quoted(str(error))}") from None
        return count

    def frames(self) -> Iterator[Any]:
        """All frames, in the order in which they are shown."""
        count = 0
        try:
            for frame in self._container.decode(self._stream):
                count += 1
                self._check_count(count)
                self._limits.check_size(frame.height, frame.width)
                yield frame
        except MediaError:
            raise
        except Exception as error:
            raise MediaError(
                f"it is damaged behind its frame {count}: {quoted(str(error))}"
            ) from None

    def _check_count(self, count: int) -> None:
        self._check_wanted()
        self._limits.check_clip(count, self._stream.height, self._stream.width, self.fps)

    def picture(self, frame: Any) -> Picture:
        try:
            plane = frame.reformat(format="rgb24").planes[0]
            data, pitch, width = bytes(plane), plane.line_size, 3 * frame.width
        except Exception as error:
            raise MediaError(f"a frame can't be converted: {quoted(str(error))}") from None
        if pitch != width:
            rows = range(frame.height)
            data = b"".join(data[r * pitch : r * pitch + width] for r in rows)
        return Picture(frame.height, frame.width, data[: frame.height * width])

    def close(self) -> None:
        self._container.close()


def _chosen(choose: Choose, total: int, fps: float, limits: MediaLimits) -> list[int]:
    if total < 1:
        raise MediaError("it has no frames")
    indices = choose(total, fps)
    if len(indices) > limits.max_frames:
        raise MediaError(
            f"{len(indices)} of its frames would be used, more than max_frames "
            f"({limits.max_frames}): lower fps"
        )
    return indices


def _pyav() -> Any:
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise ImportError(
            'video files need PyAV: pip install "headrace[video]" (frames as images do not)'
        ) from error
