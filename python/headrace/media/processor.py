"""From what a caller passes to a MediaItem: load, decode, resize, name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headrace.errors import MediaError
from headrace.media.cache import MediaCache
from headrace.media.clips import Clip, ShorterClipError, decode_clip, given_frames
from headrace.media.item import Grid, MediaItem, content_key
from headrace.media.limits import MediaLimits
from headrace.media.model_settings import ModelSettings
from headrace.media.options import with_options
from headrace.media.pictures import (
    Picture,
    decode_picture,
    is_array,
    is_pillows,
    picture_of,
    pictures_of_array,
)
from headrace.media.sampling import frame_indices
from headrace.media.settings import Settings
from headrace.media.sizes import clip_size, image_size
from headrace.media.sources.load import MediaAccess, load_bytes
from headrace.media.stamps import Stamper
from headrace.media.tiles import tiles_of, video_frame
from headrace.quoting import quoted

_LONGEST_UUID = 256


class MediaProcessor:
    """Makes items for one model. For any number of threads; the heavy work releases the GIL.

    settings: read_model_settings(folder). options: `mm_processor_kwargs` of the engine; a call's
    own come on top. access: what addresses may reach. cache: of items; several may share one.
    decode: runs what is left to do once an item's bytes are there; None: it runs at once.
    check: called at each frame of a clip; what it raises ends the work.
    """

    def __init__(
        self,
        settings: ModelSettings,
        options: Mapping[str, Any] | None = None,
        *,
        access: MediaAccess | None = None,
        limits: MediaLimits | None = None,
        cache: MediaCache | None = None,
        decode: Callable[[Callable[[], MediaItem]], MediaItem] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._model = settings
        self._options = dict(options or {})
        self._access = access or MediaAccess()
        self._limits = limits or MediaLimits()
        self._cache = cache
        self._decode = decode
        self._check = check or (lambda: None)
        self._defaults = {kind: self._settings(kind, None) for kind in ("image", "video")}

    @property
    def settings(self) -> ModelSettings:
        return self._model

    def image(
        self,
        source: Any,
        *,
        uuid: str | None = None,
        options: Mapping[str, Any] | None = None,
        name: str = "image",
    ) -> MediaItem:
        """A still image.

        source: encoded bytes (PNG, JPEG, WebP, GIF, BMP, PPM, AVIF; the first frame of
            an animated one), a pathlib.Path, a `data:`, `file:` or `http(s):` address, an image of
            Pillow (taken as it is: its EXIF orientation is not applied), or a uint8 array [height,
            width, 3] or [height, width]. None: what the cache has under `uuid`.
        uuid: names the content in place of its pixels; the caller vouches for it.
        options: like `mm_processor_kwargs`, of this call.
        name: begins the message of an error, as in "image 2 of 3".

        Raises MediaError for the item, TypeError or ValueError for the options, ImportError where
        Pillow is needed and missing.
        """
        return self._item("image", source, uuid, options, name)

    def video(
        self,
        source: Any,
        *,
        uuid: str | None = None,
        options: Mapping[str, Any] | None = None,
        fps: float | None = None,
        name: str = "video",
    ) -> MediaItem:
        """A clip: as `image`, but for these.

        source: a file of video, or an animated GIF, WebP or PNG, sampled by the model's rule; or
            frames that were sampled already: a uint8 array [frames, height, width, 3], or a list of
            images and arrays, all of one size.
        fps: of frames given as such: how many belong to a second (default: the rate that the model
            samples with).
        """
        if not self._model.family.takes_clips:
            raise MediaError(f"{name}: this model takes no clips, only images")
        if fps is not None and not (isinstance(fps, (int, float)) and 0.001 <= fps <= 1000):
            raise ValueError(f"fps must lie in [0.001, 1000], got {quoted(fps)}")
        return self._item("video", source, uuid, options, name, fps)

    def _settings(self, modality: str, options: Mapping[str, Any] | None) -> Settings:
        base = self._model.image if modality == "image" else self._model.video
        return with_options(with_options(base, modality, self._options), modality, options)

    def _item(
        self,
        modality: str,
        source: Any,
        uuid: str | None,
        options: Mapping[str, Any] | None,
        name: str,
        fps: float | None = None,
    ) -> MediaItem:
        settings = self._settings(modality, options) if options else self._defaults[modality]
        try:
            _check_uuid(uuid)
            known = None if uuid is None else self._known(settings, modality, fps, uuid)
            if known is not None:
                return known
            if source is None:
                missing = (
                    "it has neither data nor uuid"
                    if uuid is None
                    else (f"nothing is kept under its uuid {quoted(uuid)}: send the data, too")
                )
                raise MediaError(missing)
            return self._made(modality, settings, source, uuid, fps)
        except MediaError as error:
            raise MediaError(f"{name}: {error}") from error.__cause__

    def _known(
        self, settings: Settings, modality: str, fps: float | None, uuid: str
    ) -> MediaItem | None:
        if self._cache is None:
            return None
        return self._cache.get(self._key(settings, modality, fps, b"uuid", uuid.encode()))

    def _key(
        self, settings: Settings, modality: str, fps: float | None, kind: bytes, name: bytes
    ) -> bytes:
        """What the cache knows an item by before it is decoded."""
        font = str(self._model.font) if settings.draw_on_frames else ""
        return content_key(settings, modality, (), (fps or 0.0,), font.encode(), kind, name)

    def _made(
        self, modality: str, settings: Settings, source: Any, uuid: str | None, fps: float | None
    ) -> MediaItem:
        data = load_bytes(source, modality, self._access, self._limits)
        key = None
        if uuid is not None:
            key = self._key(settings, modality, fps, b"uuid", uuid.encode())
        elif data is not None and self._cache is not None:
            key = self._key(settings, modality, fps, b"data", hashlib.sha256(data).digest())
            if (item := self._cache.get(key)) is not None:
                return item

        def decode() -> MediaItem:
            if modality == "image":
                return self._image(settings, source, data, uuid)
            return self._video(settings, source, data, uuid, fps)

        item = decode() if self._decode is None else self._decode(decode)
        if key is not None and self._cache is not None:
            self._cache.put(key, item)
        return item

    def _image(
        self, settings: Settings, source: Any, data: bytes | None, uuid: str | None
    ) -> MediaItem:
        picture = self._picture(source) if data is None else decode_picture(data, self._limits)
        if settings.tile:
            tiles, shape = tiles_of(picture, settings)
            return self._finish("image", settings, tiles, uuid, tiles=shape)
        height, width = picture.height, picture.width
        if settings.do_resize and settings.square:
            height = width = settings.square
        elif settings.do_resize:
            height, width = image_size(height, width, settings.bounds())
        self._check_size(settings, height, width, 1)
        return self._finish(
            "image", settings, [picture.resized(height, width, settings.resample)], uuid
        )

    def _video(
        self,
        settings: Settings,
        source: Any,
        data: bytes | None,
        uuid: str | None,
        fps: float | None,
    ) -> MediaItem:
        rule = settings.sampling
        assert rule is not None
        if data is None:
            frames = self._frames(source)
            clip = given_frames(frames, fps or rule.fps or 2.0)
            return self._sampled(settings, clip, uuid)
        if fps is not None:
            raise MediaError("fps belongs to frames given as such; of a file, pass it as an option")

        def choose(total: int, rate: float) -> list[int]:
            return frame_indices(rule, total, rate)

        try:
            return self._sampled(
                settings, decode_clip(data, self._limits, choose, check=self._check), uuid
            )
        except ShorterClipError as error:
            if error.frames < 1:
                raise
            again = decode_clip(data, self._limits, choose, error.frames, self._check)
            return self._sampled(settings, again, uuid)

    def _sampled(self, settings: Settings, clip: Clip, uuid: str | None) -> MediaItem:
        stamper = Stamper(self._model.font) if settings.draw_on_frames else None
        if settings.tile:
            self._check_size(settings, settings.tile, settings.tile, clip.count)
        frames: list[Picture] = []
        target: tuple[int, int] | None = None
        first: Picture | None = None
        for index, frame in zip(clip.indices, clip.frames, strict=False):
            first = first or frame
            if (frame.height, frame.width) != (first.height, first.width):
                raise MediaError(f"frame {index} differs in size from the first one")
            if stamper is not None:
                frame = stamper.draw(frame, index / clip.fps)
            if settings.tile:
                frames.append(video_frame(frame, settings))
                continue
            if target is None:
                target = self._frame_size(settings, frame, clip.count)
            frames.append(frame.resized(*target, settings.resample))
        if len(frames) != clip.count:
            raise MediaError(f"only {len(frames)} of {clip.count} frames can be read")
        pair = settings.temporal_merge_size
        frames += frames[-1:] * (-len(frames) % pair)
        indices = list(clip.indices)
        group = settings.temporal_patch_size * pair
        indices += indices[-1:] * (-len(indices) % group)
        seconds = [index / clip.fps for index in indices]
        times = tuple(
            (seconds[i] + seconds[i + group - 1]) / 2 for i in range(0, len(seconds), group)
        )
        sampled_fps = clip.count / clip.total * clip.fps
        return self._finish(
            "video",
            settings,
            frames,
            uuid,
            times=times,
            second_per_grid=group / sampled_fps,
            duration=clip.duration,
        )

    def _frame_size(self, settings: Settings, frame: Picture, count: int) -> tuple[int, int]:
        height, width = frame.height, frame.width
        if settings.do_resize:
            bounds = settings.clip_bounds(count)
            if settings.bounds_whole_clip:
                pair = settings.temporal_patch_size
                height, width = clip_size(count, height, width, bounds, pair)
            else:
                height, width = image_size(height, width, bounds)
        self._check_size(settings, height, width, count)
        return height, width

    def _check_size(self, settings: Settings, height: int, width: int, frames: int) -> None:
        """Before anything is resized."""
        if settings.square and (height, width) != (settings.square, settings.square):
            raise MediaError(
                f"it has {width} x {height} pixels and do_resize is off: this model takes "
                f"{settings.square} x {settings.square}"
            )
        factor = settings.patch_size * settings.merge_size
        if height % factor or width % factor:
            raise MediaError(
                f"it has {width} x {height} pixels and do_resize is off: both must be multiples of "
                f"{factor}"
            )
        if 3 * height * width * frames > self._limits.max_item_bytes:
            raise MediaError(
                f"its {frames} frames of {width} x {height} pixels are more than max_item_bytes "
                f"({self._limits.max_item_bytes}): lower max_pixels or the number of frames"
            )
        if settings.tile:
            factor = settings.patch_size * settings.tile_merge
        together = settings.temporal_patch_size * settings.temporal_merge_size
        rows = (height // factor) * (width // factor) * -(-frames // together)
        if rows > self._limits.max_rows:
            raise MediaError(
                f"it takes {rows} tokens, more than the {self._limits.max_rows} that there is room "
                "for: lower max_pixels or the number of frames"
            )

    def _picture(self, source: Any) -> Picture:
        if is_array(source):
            return pictures_of_array(source, self._limits, 3)[0]
        if is_pillows(source):
            return picture_of(source, self._limits)
        raise MediaError(
            f"a {type(source).__name__} is no image: pass bytes, a pathlib.Path, an address, an "
            "image of Pillow or a uint8 array"
        )

    def _frames(self, source: Any) -> list[Picture]:
        if is_array(source):
            return pictures_of_array(source, self._limits, 4)
        if isinstance(source, Sequence) and len(source) > self._limits.max_frames:
            raise MediaError(
                f"it has {len(source)} frames, more than max_frames ({self._limits.max_frames})"
            )
        if isinstance(source, Sequence) and len(source) > 0:
            return self._given_frames(source)
        raise MediaError(
            f"a {type(source).__name__} is no video: pass bytes, a pathlib.Path, an address, a "
            "uint8 array of frames or a list of images"
        )

    def _given_frames(self, source: Sequence[Any]) -> list[Picture]:
        first = self._picture(source[0])
        self._limits.check_given(len(source), first.height, first.width)
        frames = [first]
        for index, image in enumerate(source[1:], 1):
            frames.append(self._picture(image))
            if (frames[-1].height, frames[-1].width) != (first.height, first.width):
                raise MediaError(f"frame {index} differs in size from the first one")
        return frames

    def _finish(
        self,
        modality: str,
        settings: Settings,
        frames: Sequence[Picture],
        uuid: str | None,
        *,
        times: tuple[float, ...] = (),
        second_per_grid: float = 0.0,
        duration: float = 0.0,
        tiles: tuple[int, int] = (0, 0),
    ) -> MediaItem:
        height, width = frames[0].height, frames[0].width
        t = -(-len(frames) // settings.temporal_patch_size)
        grid = Grid(t, height // settings.patch_size, width // settings.patch_size)
        merge = settings.merge_size
        llm_grid = Grid(
            t // settings.temporal_merge_size if modality == "video" else t,
            grid.h // merge,
            grid.w // merge,
        )
        if settings.tile:
            llm_grid = Grid(
                t, 1, (settings.tile // settings.patch_size // settings.tile_merge) ** 2
            )
        pixels = b"".join(frame.rgb for frame in frames)
        shape = (len(frames), *grid, *llm_grid, *tiles)
        vouched = (b"uuid", uuid.encode()) if uuid is not None else (b"pixels", pixels)
        return MediaItem(
            modality,
            pixels,
            len(frames),
            height,
            width,
            grid,
            settings.patch_size,
            merge,
            settings.temporal_patch_size,
            settings.table(),
            llm_grid,
            content_key(settings, modality, shape, (*times, second_per_grid, duration), *vouched),
            second_per_grid,
            times,
            tiles,
            duration,
        )


def numbered(modality: str, count: int) -> Iterator[str]:
    """Names for `count` items: "image 2 of 3"."""
    for number in range(1, count + 1):
        yield f"{modality} {number} of {count}"


def _check_uuid(uuid: str | None) -> None:
    if uuid is None:
        return
    if not isinstance(uuid, str) or not uuid or len(uuid) > _LONGEST_UUID:
        raise MediaError(
            f"its uuid must be a str of 1 to {_LONGEST_UUID} characters, got {quoted(uuid)}"
        )
    if not uuid.isprintable():
        raise MediaError(f"its uuid {quoted(uuid)} has characters that can't be printed")
