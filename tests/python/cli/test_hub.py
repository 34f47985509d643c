"""From a model's name to a folder, against a hub on localhost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import model_folders
import pytest
from fake_hub import FakeHub, serve

from headrace import hub as hub_module
from headrace.hub import resolve_model

PACKAGE = str(Path(hub_module.__file__).parents[1])


def test_a_local_folder(tmp_path: Path) -> None:
    assert resolve_model(tmp_path) == tmp_path
    assert resolve_model(str(tmp_path)) == tmp_path


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert resolve_model("~/model") == tmp_path / "model"


@pytest.mark.parametrize("name", ["/no/such", "./no", "no/such/folder", "../no", "~/no", "a b"])
def test_a_missing_folder(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="There is no model folder"):
        resolve_model(name)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(NotADirectoryError, match=r"pass the folder that holds config\.json"):
        resolve_model(path)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install headrace\[hub\]"):
        resolve_model("some/model")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub")
    folder = tmp_path / "repository"
    folder.mkdir()
    model_folders.byte_level_folder(folder)
    for name in ("model.safetensors", "merges.txt", "chat_template.jinja", "tokenizer.model"):
        (folder / name).write_text(f"{name} of the repository")
    for name in ("pytorch_model.bin", "code.py", "README.md", "weights.pdparams", "pickle.pkl"):
        (folder / name).write_text("not wanted")
    (folder / "original").mkdir()  # as gpt-oss's repositories have it
    (folder / "original" / "model.safetensors").write_text("the weights again")
    with serve(FakeHub({"someone/model": folder})) as running:
        yield running


def resolve(hub: FakeHub, home: Path, *args: Any, **environment: str) -> dict[str, Any]:
    """resolve_model(*args) in its own process: the hub package reads its environment once."""
    code = (
        "import json, sys\n"
        "from headrace.hub import resolve_model\n"
        "try:\n"
        "    folder = resolve_model(*json.loads(sys.argv[1]))\n"
        "    print(json.dumps({'files': sorted(p.name for p in folder.iterdir())}))\n"
        "except Exception as error:\n"
        "    print(json.dumps({'kind': type(error).__name__, 'error': str(error)}))\n"
    )
    own = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONPATH": PACKAGE,
    }
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(args)],
        env={**os.environ, **own, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


WANTED = [
    "chat_template.jinja",
    "config.json",
    "merges.txt",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
]


def test_only_wanted_files_are_fetched_and_only_once(hub: FakeHub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert resolve(hub, home, "someone/model")["files"] == WANTED
    assert sorted(hub.fetched) == WANTED
    assert resolve(hub, home, "someone/model")["files"] == WANTED
    assert sorted(hub.fetched) == WANTED  # the second time from the cache
    assert resolve(hub, home, "someone/model", HF_HUB_OFFLINE="1")["files"] == WANTED


def test_a_tokenizer_needs_no_weights(hub: FakeHub, tmp_path: Path) -> None:
    files = resolve(hub, tmp_path / "home", "someone/model", "master", False)["files"]
    assert files == [name for name in WANTED if name != "model.safetensors"]


@pytest.mark.parametrize(("given", "asked"), [("master", "main"), ("v1.0", "v1.0")])
def test_revision(hub: FakeHub, tmp_path: Path, given: str, asked: str) -> None:
    resolve(hub, tmp_path / "home", "someone/model", given)
    assert set(hub.revisions) == {asked}


def test_an_unknown_model(hub: FakeHub, tmp_path: Path) -> None:
    answer = resolve(hub, tmp_path / "home", "someone/else")
    assert answer["kind"] == "FileNotFoundError"
    assert "someone/else is neither a local folder, nor in the cache, nor" in answer["error"]


def test_offline_and_not_in_the_cache(hub: FakeHub, tmp_path: Path) -> None:
    answer = resolve(hub, tmp_path / "home", "someone/model", HF_HUB_OFFLINE="1")
    assert answer["kind"] == "FileNotFoundError"
    assert hub.fetched == []


def test_a_hub_that_is_down(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    down = FakeHub({})
    with serve(down):
        pass
    answer = resolve(down, tmp_path / "home", "someone/model")
    assert answer["kind"] == "FileNotFoundError"
