"""Items from what callers pass: decoding, limits, identity, the cache, threads, model files."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import subprocess
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_support import GOLDEN, MODES, encoded, frames, picture, processor

from headrace.errors import MediaError, UnsupportedError
from headrace.media import (
    Grid,
    MediaCache,
    MediaLimits,
    MediaProcessor,
    numbered,
    read_model_settings,
)
from headrace.media.pictures import Picture, decode_picture, picture_of

Image = pytest.importorskip("PIL.Image")
LIMITS = MediaLimits()


def noise(height: int = 60, width: int = 80) -> Any:
    return Image.fromarray(picture("noise", height, width))


def mode_image(mode: str) -> Any:
    channels = {"RGBA": 4, "CMYK": 4, "LA": 2}.get(mode, 1)
    pixels = picture("noise", 9, 11, channels)
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) * 3)
    if channels > 1:
        size, data = (11, 9), pixels.tobytes()
        return Image.frombytes(mode, size, data)
    return Image.fromarray(pixels[..., 0]).convert(mode)


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    image = mode_image(mode)
    if mode == "I;16":  # not as Pillow, which makes all above 255 white
        shades = np.asarray(image) >> 8
        assert picture_of(image, LIMITS).rgb == np.repeat(shades, 3).astype(np.uint8).tobytes()
        return
    if mode == "P":
        image.info["transparency"] = 3
    assert hashlib.sha256(picture_of(image, LIMITS).rgb).hexdigest() == GOLDEN["modes"][mode]


def test_every_way_in_gives_the_same_item(tmp_path: Path) -> None:
    made = processor("qwen2_vl")
    image = noise()
    (tmp_path / "a.png").write_bytes(encoded(image))
    ways = [image, np.asarray(image), encoded(image), encoded(image, "BMP"), tmp_path / "a.png"]
    items = [made.image(way) for way in ways]
    assert len({item.key for item in items}) == 1
    assert len({bytes(item.pixels) for item in items}) == 1
    assert items[0].grid == Grid(1, 4, 6)
    assert items[0].patches().shape == (24, 1176)
    assert bytes(items[0].patches(0, 1)) == bytes(items[0].patches())
    with pytest.raises(ValueError, match="grids 1 to 1 of 1"):
        items[0].patches(1)
    grey = made.image(np.asarray(image)[..., 0])
    assert grey.key == made.image(np.repeat(np.asarray(image)[..., :1], 3, axis=2)).key
    strided = made.image(np.asarray(image)[::2, ::-1])
    assert strided.key == made.image(np.asarray(image)[::2, ::-1].copy()).key


def test_exif_turns_files_but_not_images() -> None:
    image = noise()
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(image, exif=exif.tobytes())
    turned = decode_picture(data, LIMITS)
    assert (turned.height, turned.width) == (80, 60)
    assert np.array_equal(
        np.frombuffer(turned.rgb, np.uint8).reshape(80, 60, 3), np.rot90(np.asarray(image), -1)
    )
    opened = Image.open(io.BytesIO(data))
    assert processor("qwen2_vl").image(opened).key == processor("qwen2_vl").image(image).key


def test_transparency_is_white() -> None:
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    assert picture_of(image, LIMITS).rgb == bytes([255, 255, 255, 10, 20, 30])


def test_animations_give_their_first_frame() -> None:
    first, second = noise(), Image.new("RGB", (80, 60))
    for kind in ("PNG", "WEBP"):
        data = encoded(first, kind, save_all=True, append_images=[second], lossless=True)
        assert decode_picture(data, LIMITS).rgb == first.tobytes()


def png(height: int, width: int) -> bytes:
    """A file that says it is of that size, and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


HOSTILE = {
    "empty": (b"", "no data"),
    "text": (b"hello", "no image of a known format"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image of a known"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image of a known format"),
    "truncated": (encoded(noise())[:3000], "can't be decoded"),
    "truncated jpeg": (encoded(noise(), "JPEG")[:700], "can't be decoded"),
    "only a header": (png(60, 80), "can't be decoded"),
    "huge": (png(9000, 12000), "12000 x 9000 pixels, more than max_pixels"),
    "bomb": (png(60000, 60000), "too large to decode|more than max_pixels"),
    "long": (png(1, 1 << 21), "a side above"),
    "flat": (png(0, 5), "can't be decoded|no image|size is"),
    "strip": (encoded(Image.new("RGB", (300, 1))), "200 times as long"),
    "mp4": (b"\0\0\0\x18ftypmp42" + bytes(40), "no image of a known format"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_images(name: str) -> None:
    data, words = HOSTILE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(MediaError, match=f"^image 2 of 3: .*({words})"):
            processor("qwen2_vl").image(data, name="image 2 of 3")
    assert list(numbered("image", 3))[1] == "image 2 of 3"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.zeros((4, 4, 3), np.float32), "type uint8"),
        (np.full((4, 4, 3), np.nan), "type uint8"),
        (np.zeros((4, 4, 3), bool), "type uint8"),
        (np.zeros((4, 4, 4), np.uint8), "shape"),
        (np.zeros((3, 4, 5), np.uint8), "shape"),
        (np.zeros((0, 4, 3), np.uint8), "size is"),
        (np.zeros((2, 4, 4, 3), np.uint8), "shape"),
        (Image.new("F", (4, 4)), "float pixels"),
        (5, "a int is no image"),
        ({"url": "x"}, "a dict is no image"),
        (None, "neither data nor uuid"),
    ],
)
def test_what_is_no_image(source: Any, words: str) -> None:
    with pytest.raises(MediaError, match=words):
        processor("qwen2_vl").image(source)


def test_limits_of_pixels_and_bytes() -> None:
    made = processor("qwen2_vl", limits=MediaLimits(max_pixels=4799))
    for source in (noise(), np.asarray(noise()), encoded(noise())):
        with pytest.raises(MediaError, match="more than max_pixels"):
            made.image(source)
    with pytest.raises(MediaError, match="more than max_image_bytes"):
        processor("qwen2_vl", limits=MediaLimits(max_image_bytes=99)).image(encoded(noise()))
    with pytest.raises(MediaError, match="longer than 4096"):
        processor("smolvlm", options={"do_resize": False}).image(np.zeros((2, 5000, 3), np.uint8))
    with pytest.raises(MediaError, match="more than max_item_bytes"):
        processor("qwen2_vl", limits=MediaLimits(max_item_bytes=9999)).image(noise())
    with pytest.raises(MediaError, match="more than max_frames"):
        processor("qwen2_vl", limits=MediaLimits(max_frames=3)).video(frames(4, 28, 28))
    with pytest.raises(ValueError, match="max_pixels must be above 0"):
        MediaLimits(max_pixels=0)
    with pytest.raises(TypeError, match="max_frames must be a number"):
        MediaLimits(max_frames=1.5)  # type: ignore[arg-type]


def test_keys_tell_everything_apart() -> None:
    made = processor("qwen2_vl")
    pixels = picture("noise", 56, 84)
    changed = pixels.copy()
    changed[30, 40, 1] ^= 1
    flat, tall = np.zeros((28, 112, 3), np.uint8), np.zeros((112, 28, 3), np.uint8)
    clip = frames(4, 112, 112)
    items = [
        made.image(pixels),
        made.image(changed),
        made.image(flat),
        made.image(tall),
        made.image(pixels, options={"image_max_pixels": 6272}),
        made.video(clip),
        made.video(clip, fps=3.0),
        made.video(clip[:2]),
        processor("ernie4_5_vl").image(pixels),
        made.image(pixels, uuid="a"),
        made.image(pixels, uuid="b"),
        made.image(flat, uuid="a"),
    ]
    assert len({item.key for item in items}) == len(items)
    assert made.image(pixels).key == items[0].key
    assert made.image(changed, uuid="a").key == items[9].key
    assert all(len(item.key) == 32 for item in items)


def test_cache() -> None:
    cache = MediaCache(1 << 20)
    made = processor("qwen2_vl", cache=cache)
    data = encoded(noise())
    item = made.image(data)
    assert made.image(data) is item
    assert made.image(data, options={"image_min_pixels": 6272}) is not item
    named = made.image(data, uuid="mine")
    assert made.image(None, uuid="mine") is named
    assert made.image(b"whatever", uuid="mine") is named
    with pytest.raises(MediaError, match="nothing is kept under its uuid 'other'"):
        made.image(None, uuid="other")
    with pytest.raises(MediaError, match="nothing is kept"):
        made.video(None, uuid="mine")
    for uuid in ("", "x" * 257, "a\nb", 5):
        with pytest.raises(MediaError, match="uuid"):
            made.image(data, uuid=uuid)  # type: ignore[arg-type]
    stats = cache.stats()
    assert stats["items"] == 3
    assert stats["hits"] == 3
    cache.clear()
    assert cache.stats()["bytes"] == 0


def test_the_cache_is_bounded() -> None:
    made = processor("qwen2_vl")
    items = [made.image(picture("noise", 56, 56 + 28 * i)) for i in range(4)]
    cache = MediaCache(items[0].nbytes + items[1].nbytes)
    for number, item in enumerate(items[:2]):
        cache.put(bytes([number]), item)
    assert cache.get(b"\0") is items[0]
    cache.put(b"\2", items[0])  # the least recently used one goes
    assert cache.get(b"\1") is None
    assert cache.get(b"\0") is items[0]
    cache.put(b"\3", replace(items[3], pixels=bytes(1 << 20)))
    assert cache.get(b"\3") is None
    assert cache.stats()["bytes"] <= items[0].nbytes + items[1].nbytes
    none = MediaCache(0)
    none.put(b"\0", items[0])
    assert none.get(b"\0") is None
    with pytest.raises(ValueError, match="at least 0"):
        MediaCache(-1)


def test_threads_share_a_processor() -> None:
    made = processor("qwen2_vl", cache=MediaCache(1 << 16))
    data = [encoded(noise(40 + 7 * i, 90)) for i in range(6)]
    alone = [made.image(item).key for item in data]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda item: made.image(item).key, data * 5)) == alone * 5


def test_errors_and_reprs_stay_short() -> None:
    item = processor("qwen2_vl").image(picture("noise", 56, 56))
    assert len(repr(item)) < 800


def write(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_model_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        config={"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 2}},
        preprocessor_config={"min_pixels": 3136, "max_pixels": 9408, "image_mean": [0.1, 0.2, 0.3]},
        video_preprocessor_config={
            "size": {"shortest_edge": 1000, "longest_edge": 20000},
            "fps": 1,
        },
    )
    model = read_model_settings(tmp_path)
    assert model.tokens_per_second == 2
    assert (model.image.max_pixels, model.image.mean) == (9408, (0.1, 0.2, 0.3))
    assert (model.video.min_pixels, model.video.max_pixels) == (1000, 20000)
    assert model.video.mean == (0.1, 0.2, 0.3)
    assert model.video.sampling is not None
    assert model.video.sampling.fps == 1
    write(tmp_path, processor_config={"image_processor": {"max_pixels": 6272}})
    assert read_model_settings(tmp_path).image.max_pixels == 6272


def test_tiles_follow_the_config(tmp_path: Path) -> None:
    write(
        tmp_path,
        config={
            "model_type": "smolvlm",
            "scale_factor": 3,
            "vision_config": {"patch_size": 14, "image_size": 378},
        },
        preprocessor_config={
            "size": {"longest_edge": 1512},
            "video_sampling": {"fps": 2, "max_frames": 32, "video_size": {"longest_edge": 378}},
        },
    )
    model = read_model_settings(tmp_path)
    assert (model.image.tile, model.image.longest_edge, model.image.tile_merge) == (378, 1512, 3)
    assert (model.video.longest_edge, model.image.do_split) == (378, True)
    assert model.video.sampling is not None
    assert (model.video.sampling.max_frames, model.video.sampling.fps) == (32, 2)
    item = MediaProcessor(model).image(picture("slope", 100, 200))
    assert item.rows == item.frames * 81


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config": {"model_type": "llama"}}, "takes no images"),
        ({"config": {}}, "takes no images"),
        ({"preprocessor_config": {"max_pixels": "9"}}, "max_pixels"),
        ({"preprocessor_config": {"max_pixels": 1}}, "min_pixels"),
        ({"preprocessor_config": {"image_std": [0, 1, 1]}}, "std"),
        ({"preprocessor_config": {"image_mean": [0, 1]}}, "three numbers"),
        ({"preprocessor_config": {"resample": 7}}, "resample"),
        ({"preprocessor_config": {"image_mean": [1e308, 0, 0]}}, "mean"),
        ({"preprocessor_config": {"image_mean": [10**400, 0, 0]}}, "image_mean"),
        ({"preprocessor_config": {"rescale_factor": -1}}, "rescale_factor"),
        ({"preprocessor_config": {"do_center_crop": True}}, "not cropped"),
        ({"preprocessor_config": {"do_resize": 1}}, "true or false"),
        ({"preprocessor_config": {"patch_size": 16}}, r"vision_config\.patch_size"),
        ({"video_preprocessor_config": {"fps": "2"}}, "fps"),
    ],
)
def test_bad_model_files(tmp_path: Path, files: dict[str, Any], words: str) -> None:
    config = {"model_type": "qwen2_vl", "vision_config": {"patch_size": 14}}
    write(tmp_path, **{"config": config, **files})
    with pytest.raises((MediaError, UnsupportedError), match=words):
        read_model_settings(tmp_path)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    write(tmp_path, config={"model_type": "qwen2_vl"})
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(MediaError, match=r"preprocessor_config\.json"):
        read_model_settings(tmp_path)


def test_resizing_does_not_ask_pillow() -> None:
    pixels = picture("noise", 48, 64)
    small = Picture(48, 64, pixels.tobytes()).resized(20, 30, 3)
    assert (small.height, small.width, len(small.rgb)) == (20, 30, 1800)


def test_without_pillow() -> None:
    """Arrays do without; what needs Pillow says how to get it."""
    script = """
import sys
sys.modules["PIL"] = None
sys.modules["av"] = None
import numpy as np
import headrace
from headrace.media import MediaProcessor, ModelSettings, family_of
family = family_of("qwen2_vl")
made = MediaProcessor(ModelSettings(family, family.image, family.video))
assert made.image(np.zeros((60, 80, 3), np.uint8)).rows == 6
for call, extra in ((made.image, "vision"), (made.video, "video")):
    try:
        call(b"x" * 50)
    except ImportError as error:
        assert f'pip install "headrace[{extra}]"' in str(error), error
    else:
        raise AssertionError(extra)
"""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
