"""Images and clips on the command line, over the fake engine."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_core
import pytest
from media_support import ROOT
from PIL import Image
from vision_folders import vision_folder

from headrace.cli import chat, main

assert ROOT  # what skips without the extension
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    fake_engine: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """run(*words, stdin=text) in a folder with a.png, b.png, a clip c.webp and a model "m"."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    vision_folder(tmp_path / "m")
    for name, color in (("a", (200, 0, 0)), ("b", (0, 200, 0))):
        Image.new("RGB", (56, 28), color).save(tmp_path / f"{name}.png")
    frames = [Image.new("RGB", (56, 28), (level, 0, 0)) for level in range(0, 200, 20)]
    frames[0].save(tmp_path / "c.webp", save_all=True, append_images=frames[1:], duration=250)

    def call(*words: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        try:
            status = main(words)
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return call


def kinds() -> list[list[str]]:
    """Of the items of each request."""
    return [
        ["video" if item.video else "image" for item in media]
        for media in fake_core.submitted_media
    ]


def test_chat(run: Run) -> None:
    words = "/image b.png\n/video c.webp\nAnd these?\n/reset\nHello\n"
    status, _, err = run("chat", "m", "--image", "a.png", stdin="What is it?\n" + words)
    assert (status, err) == (0, "")
    assert kinds() == [["image"], ["image", "image", "video"], []]


def test_saved_conversations_name_their_files(run: Run, tmp_path: Path) -> None:
    status, _, _ = run("chat", "m", stdin="/image a.png\nWhat?\n/save out.json\n")
    assert status == 0
    saved = json.loads((tmp_path / "out.json").read_text())["messages"]
    assert saved[0]["content"] == [
        {"type": "image", "image": "a.png"},
        {"type": "text", "text": "What?"},
    ]


def test_what_cannot_be_shown(run: Run, toy_folder: Path, tmp_path: Path) -> None:
    status, _, err = run("chat", "m", stdin="/image missing.png\n/image\nHello\n")
    assert status == 1
    assert "there is no file missing.png" in err
    assert "usage: /image FILE" in err
    status, _, err = run("chat", str(toy_folder), stdin="/image a.png\nHello\n")
    assert status == 1
    assert "this model reads text only" in err
    assert kinds() == [[], []]
    (tmp_path / "bad.png").write_bytes(b"x")
    status, _, err = run("chat", "m", stdin="/image bad.png\nWhat?\nHello\n")
    assert status == 1
    assert "image 1 of 1: " in err
    assert kinds() == [[], [], []]  # it isn't shown again with the next message
    status, _, err = run("chat", "m", "--image", "missing.png")
    assert status == 2
    assert "there is no file missing.png" in err


def test_generate(run: Run) -> None:
    status, out, err = run(
        "generate", "-m", "m", "--chat", "--json", "--image", "a.png", "--image", "b.png",
        "--max-tokens", "1", "What is it?",
    )  # fmt: skip
    assert (status, err) == (0, "")
    record = json.loads(out)
    assert (record["image_tokens"], record["video_tokens"]) == (4, 0)
    assert record["prompt"].count("<|image_pad|>") == 2
    mark = "<|vision_start|><|video_pad|><|vision_end|>"
    words = ("generate", "-m", "m", "--json", "--video", "c.webp", "--max-tokens", "1")
    status, out, _ = run(*words, f"{mark}What?")
    assert status == 0
    assert json.loads(out)["video_tokens"] > 0
    status, _, err = run(*words, "What?")
    assert status == 1
    assert "there must be one <|video_pad|> for each" in err


def test_options(run: Run, tmp_path: Path) -> None:
    words = ("generate", "-m", "m", "--chat", "--json", "--max-tokens", "1", "What?")
    status, out, _ = run(*words, "--image", "a.png", "--mm-processor-kwargs", '{"max_pixels": 784}')
    assert (status, json.loads(out)["image_tokens"]) == (0, 1)
    status, _, err = run(*words, "--mm-processor-kwargs", "{")
    assert status == 2
    assert "--mm-processor-kwargs is not JSON" in err
    status, _, err = run(*words, "--image", "a.png", "--media-limits", '{"max_pixels": 9}')
    assert status == 1
    assert "max_pixels (9)" in err
    status, _, err = run(*words, "--limit-mm-per-prompt", '{"image": "many"}')
    assert status == 2
    assert "limit_mm_per_prompt['image'] must be an int" in err
    status, _, err = run(
        *words, "--image", "a.png", "--image", "b.png", "--limit-mm-per-prompt", '{"image": 1}'
    )
    assert status == 1
    assert "Too many image items in prompt, got 2 but limit is 1" in err
    address = (tmp_path / "a.png").as_uri()
    assert run(*words, "--image", address)[0] == 1
    assert run(*words, "--image", address, "--allowed-local-media-path", str(tmp_path))[0] == 0
    web = (*words, "--image", "http://10.0.0.1/a.png", "--allowed-media-domains", "example.com")
    assert "'10.0.0.1' is not in allowed_media_domains" in run(*web)[2]


def test_addresses_that_a_person_types_need_no_permission(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "/image http://10.0.0.1/a.png\nWhat?\n"
    assert "is not in allowed_media_domains" in run("chat", "m", stdin=typed)[2]

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("io.StringIO", Terminal)
    monkeypatch.setattr("headrace.cli.chat.terminal_reader", chat.PlainReader)
    assert "'10.0.0.1' has no public address" in run("chat", "m", stdin=typed)[2]
