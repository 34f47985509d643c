"""Images and clips through Engine.submit: what arrives in the engine, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from model_folders import byte_level, byte_level_folder, write_config
from native_model import LLAMA, options

from headrace import HeadraceError
from headrace.native import Engine, GenerationConfig, MediaInput, MediaRun


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("model")
    byte_level_folder(folder)
    write_config(folder, byte_level().get_vocab_size(), **{**LLAMA, "num_hidden_layers": 2})
    with Engine() as engine:
        engine.install_model("m", options(folder, device="cpu", max_model_len=100))
        engine.start_model("m")
        yield engine


def rows(engine: Engine, count: int, seed: int = 0, added: int = 0) -> np.ndarray:
    shape = (count, engine.model_info("m").hidden_size)
    draws = np.random.default_rng(seed)
    return draws.standard_normal((1 + added, *shape)).astype(np.float32) * 0.02


def answer(engine: Engine, *media: MediaInput, prompt: list[int] | None = None) -> list[int]:
    config = GenerationConfig(temperature=0.0, max_tokens=6, ignore_eos=True)
    request = engine.submit("m", prompt or list(range(3, 23)), config, media=media)
    tokens: list[int] = []
    for output in request.results():
        tokens += output.token_ids
    return tokens


def test_embeddings_change_the_answer_and_are_counted(engine: Engine) -> None:
    image = MediaInput(False, [MediaRun(2, 3), MediaRun(8, 1, 3)], embeddings=rows(engine, 4)[0])
    clip = MediaInput(
        True,
        [MediaRun(10, 4, grid=(2, 1, 2), steps=[0, 3])],
        embeddings=rows(engine, 4, 1, added=1),
        key=bytes(range(32)),
    )
    assert clip.key == bytes(range(32))
    assert image.key == bytes(32)
    assert clip.runs[0].grid == (2, 1, 2)
    assert image.runs[1].grid is None
    config = GenerationConfig(temperature=0.0, max_tokens=1)
    request = engine.submit("m", list(range(3, 23)), config, media=[image, clip])
    request.wait()
    stats = request.results().stats()
    assert (stats.image_tokens, stats.video_tokens) == (4, 4)
    assert answer(engine, image, clip) == answer(engine, image, clip)
    info = engine.model_info("m")
    assert info.takes_embeddings
    assert not info.vision
    assert engine.model_stats("m").encoded_tokens == 8


@pytest.mark.parametrize(
    ("media", "message"),
    [
        (
            lambda e: MediaInput(False, [MediaRun(18, 3)], embeddings=rows(e, 3)),
            "media.0.: runs",
        ),
        (lambda e: MediaInput(False, [], embeddings=rows(e, 3)), "it has no runs"),
        (lambda e: MediaInput(False, [MediaRun(0, 3)]), "neither pixels nor embeddings"),
        (lambda e: MediaInput(False, [MediaRun(0, 2)], embeddings=rows(e, 3)), "3 rows"),
        (
            lambda e: MediaInput(False, [MediaRun(0, 3)], embeddings=rows(e, 3) * np.nan),
            r"embeddings\[0\] is .?nan",
        ),
    ],
)
def test_bad_items_are_named(engine: Engine, media, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        answer(engine, media(engine))


def test_pixels_need_a_tower(engine: Engine) -> None:
    table = np.zeros(768, np.float32).tobytes()
    item = MediaInput(
        False, [MediaRun(0, 1)], pixels=bytes(28 * 28 * 3), height=28, width=28, table=table
    )
    with pytest.raises(HeadraceError, match=r"media\[0\]: it has pixels, but") as raised:
        answer(engine, item)
    assert raised.value.code == "unsupported"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"pixels": bytes(3)}, "pixels and table go together"),
        ({"pixels": bytes(3), "table": bytes(3072), "height": 28, "width": 28}, "2352 bytes"),
        ({"pixels": bytes(2352), "table": bytes(9), "height": 28, "width": 28}, "table"),
        ({"pixels": b"", "table": b"", "height": 27, "width": 28}, "multiples"),
        ({"key": bytes(31)}, "32 bytes, got 31"),
    ],
)
def test_wrong_sizes_are_refused_when_it_is_made(values, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        MediaInput(False, [MediaRun(0, 1)], **values)


@pytest.mark.parametrize(
    "given", [b"12345678", np.zeros((2, 3)), np.zeros(3, np.float32), np.zeros((4, 4), "f4").T[::2]]
)
def test_embeddings_are_rows_of_float32(given) -> None:
    with pytest.raises(TypeError, match="float32"):
        MediaInput(False, [MediaRun(0, 1)], embeddings=given)


def test_media_need_ids(engine: Engine) -> None:
    item = MediaInput(False, [MediaRun(0, 3)], embeddings=rows(engine, 3))
    with pytest.raises(ValueError, match="token ids"):
        engine.submit("m", "text", media=[item])
