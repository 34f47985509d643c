"""Random addresses, content parts, image and video files, settings files.

    python tests/fuzz/fuzz_media.py --times 20000 [--seed N]

Each must give a result or an error of ours: nothing else is raised, no message is longer than a
screen, nothing takes longer than --seconds of processor time. No host is ever looked up. What it
finds is printed with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import io
import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("headrace") is None:
    sys.path.insert(0, str(ROOT / "python"))

import av  # noqa: E402
from PIL import Image  # noqa: E402

from headrace.errors import MediaError, UnsupportedError  # noqa: E402
from headrace.media import (  # noqa: E402
    MediaAccess,
    MediaLimits,
    MediaProcessor,
    ModelSettings,
    family_of,
    read_model_settings,
    read_multimodal_data,
    read_part,
)
from headrace.media.requests.conversation import conversation_parts  # noqa: E402
from headrace.media.sources.load import load_bytes  # noqa: E402
from headrace.prompts import ChatOptions, find_media  # noqa: E402
from headrace.text.templates.messages import parse_messages  # noqa: E402

VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 2**31, 2**70, 10**400, 1e308, float("nan"), "", "x", "\ud800", "\0",
    b"", b"x", [], [1], {}, {"url": "data:,x"}, {"video": b"x"}, "x" * 5000, object(),
]  # fmt: skip
KEYS = ["type", "image_url", "video_url", "image", "video", "uuid", "text", "fps", "url", "detail"]
KINDS = ["text", "image_url", "video_url", "image", "video", "audio", 5]
OPTIONS = ["image_max_pixels", "size", "video_fps", "target_frames", "frames_sample", "do_resize"]
PIECES = ["data:", "image/png", ";base64", ",", "file://", "http://", "/", "..", "%2e", "%00", "@"]
PIECES += ["a", "=", "[::1]", ":80", "localhost", "#", "?", "\\", " ", "\n", "é", "AAAA"]
LIMITS = MediaLimits(
    max_image_bytes=1 << 16, max_video_bytes=1 << 16, max_pixels=1 << 16, max_source_frames=64
)
ACCESS = MediaAccess.of(ROOT / "tests/fuzz")
EXPECTED = (MediaError, UnsupportedError, TypeError, ValueError)
LONGEST_MESSAGE = 2000


def encoded(kind: str, **more: Any) -> bytes:
    out = io.BytesIO()
    Image.radial_gradient("L").resize((40, 30)).convert("RGB").save(out, kind, **more)
    return out.getvalue()


def video() -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for level in range(12):
            image = Image.new("RGB", (48, 32), (level * 20, 0, 0))
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    return out.getvalue()


VIDEO = video()
FILES = [encoded(kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM")]
SETTINGS: dict[str, dict[str, Any]] = {
    "config.json": {"model_type": "qwen2_vl", "vision_config": {"patch_size": 14}},
    "preprocessor_config.json": {
        "size": {"shortest_edge": 3136, "longest_edge": 12845056},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "patch_size": 14,
        "resample": 3,
    },
    "processor_config.json": {"video_processor": {"fps": 2, "max_frames": 8}},
}


def processor() -> MediaProcessor:
    family = family_of("qwen2_vl")
    return MediaProcessor(ModelSettings(family, family.image, family.video), limits=LIMITS)


def an_address(rng: random.Random) -> None:
    address = "".join(rng.choices(PIECES, k=rng.randint(1, 12)))
    try:
        load_bytes(address, rng.choice(["image", "video"]), ACCESS, LIMITS)
    except MediaError:
        return
    except ValueError as error:  # of the library below
        raise AssertionError(f"{address!r}: {error}") from error


def a_part(rng: random.Random) -> None:
    part = {key: rng.choice(VALUES) for key in rng.sample(KEYS, rng.randint(0, 5))}
    if rng.random() < 0.8:
        part["type"] = rng.choice(KINDS)
    found = read_part(rng.choice([part, part, rng.choice(VALUES)]))
    if found is not None:
        made = processor()
        load = made.image if found.modality == "image" else made.video
        load(found.source, uuid=found.uuid, options=found.options)
    read_multimodal_data({rng.choice(["image", "video"]): rng.choice(VALUES)})


def a_conversation(rng: random.Random) -> None:
    def part() -> Any:
        made = {key: rng.choice(VALUES) for key in rng.sample(KEYS, rng.randint(0, 4))}
        return rng.choice([{**made, "type": rng.choice(KINDS)}, made, rng.choice(VALUES)])

    def message() -> Any:
        content = rng.choice([[part() for _ in range(rng.randint(0, 3))], rng.choice(VALUES)])
        return rng.choice([{"role": "user", "content": content}, rng.choice(VALUES)])

    def either(value: Any) -> Any:
        return rng.choice([value, rng.choice(VALUES)])

    messages = either([message() for _ in range(rng.randint(0, 3))])
    conversation_parts(messages)
    parse_messages(messages, media=True)
    data = either({rng.choice(["image", "video", "x"]): either([rng.choice(VALUES)])})
    uuids = either({rng.choice(["image", "video"]): either(["cat"])})
    find_media({"prompt": "x", "multi_modal_data": data, "multi_modal_uuids": uuids}, ChatOptions())


def options(rng: random.Random) -> None:
    given = {name: rng.choice(VALUES) for name in rng.sample(OPTIONS, rng.randint(0, 3))}
    processor().image(FILES[0], options=given)


def a_clip(rng: random.Random) -> None:
    processor().video(damaged(VIDEO, rng))


def damaged(file: bytes, rng: random.Random) -> bytes:
    data = bytearray(file)
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(data))
        data[place : place + rng.choice([0, 1, 1, 9])] = rng.randbytes(rng.choice([0, 1, 4]))
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


def a_file(rng: random.Random) -> None:
    data = damaged(rng.choice(FILES), rng)
    source: Any = data
    if rng.random() < 0.2:
        source = "data:image/png;base64," + base64.b64encode(data).decode()
    made = processor()
    rng.choice([made.image, made.image, made.video])(source)


def settings(rng: random.Random) -> None:
    name = rng.choice(list(SETTINGS))
    with tempfile.TemporaryDirectory() as folder:
        for file, value in SETTINGS.items():
            spoiled = json.loads(json.dumps(value))
            if file == name:
                inner = rng.choice([spoiled, *(v for v in spoiled.values() if isinstance(v, dict))])
                inner[rng.choice(list(inner))] = rng.choice(
                    [v for v in VALUES[:12] if v != "\ud800"]
                )
            Path(folder, file).write_text(json.dumps(spoiled), encoding="utf-8")
        MediaProcessor(read_model_settings(folder), limits=LIMITS).image(FILES[0])


KIND: dict[str, Callable[[random.Random], None]] = {
    "address": an_address,
    "part": a_part,
    "conversation": a_conversation,
    "options": options,
    "file": a_file,
    "clip": a_clip,
    "settings": settings,
}


def run_all(times: int, seed: int, seconds: float = 5.0) -> list[str]:
    """What was found wrong."""
    failures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, attempt in KIND.items():
            for number in range(times):
                label = f"{name} {number} of seed {seed}"
                start = time.process_time()
                try:
                    attempt(random.Random(f"{seed} {name} {number}"))
                except EXPECTED as error:
                    if len(str(error)) > LONGEST_MESSAGE:
                        failures.append(f"{label}: a message of {len(str(error))} characters")
                except Exception as error:
                    failures.append(f"{label}: {type(error).__name__}: {str(error)[:200]}")
                if time.process_time() - start > seconds:
                    failures.append(f"{label} took longer than {seconds} s")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    failures = run_all(args.times, args.seed, args.seconds)
    print("\n".join(failures) or "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
