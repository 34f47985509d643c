"""What importing the package brings in, and what it offers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SUPPORT

import headrace

PACKAGE = Path(headrace.__file__).parents[1]
HEAVY = ("tokenizers", "sentencepiece", "jinja2", "tqdm", "numpy", "huggingface_hub", "torch")


def modules_after(code: str) -> set[str]:
    """sys.modules after `code`, with the fake engine in place of the built one."""
    prelude = f"import sys; sys.path.insert(0, {SUPPORT!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + code + "\nimport json; print(json.dumps([*sys.modules]))"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    loaded = modules_after("import headrace")
    assert {name for name in loaded if name.startswith("headrace")} == {"headrace"}
    assert not loaded.intersection(HEAVY)


def test_the_llm_class_needs_no_tokenizer_package_yet() -> None:
    loaded = modules_after(
        "import fake_core; fake_core.install()\nfrom headrace import LLM, SamplingParams"
    )
    assert "headrace.llm" in loaded
    assert not loaded.intersection(HEAVY)


def test_a_whole_run_needs_no_numpy(toy_folder: Path) -> None:
    loaded = modules_after(
        "import fake_core; fake_core.install()\n"
        "from headrace import LLM\n"
        f"llm = LLM({str(toy_folder)!r})\n"
        "llm.chat([{'role': 'user', 'content': 'hi'}])\n"
    )
    assert "headrace.text.tokenizer" in loaded
    assert not loaded.intersection(set(HEAVY) - {"tqdm"})


def test_names() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
        assert name in dir(headrace)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        headrace.nothing  # noqa: B018


def test_version() -> None:
    assert headrace.version() == headrace.__version__
    assert all(part.isdecimal() for part in headrace.version().split("."))


def test_module_paths_offer_the_same_objects() -> None:
    from headrace.engine.request import CompletionOutput, RequestMetrics, RequestOutput
    from headrace.engine.sampling_params import GuidedDecodingParams, SamplingParams
    from headrace.entrypoints.llm import LLM

    for one in (LLM, SamplingParams, GuidedDecodingParams, RequestOutput, CompletionOutput):
        assert getattr(headrace, one.__name__) is one
    assert headrace.RequestMetrics is RequestMetrics


def test_shipped_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "lib" / "headrace"
    package.mkdir(parents=True)
    monkeypatch.setattr(headrace, "__file__", str(package / "__init__.py"))
    with pytest.raises(FileNotFoundError, match="has no shipped model"):
        headrace.shipped_model()
    source = tmp_path / "site" / "examples" / "tiny_model" / "checkpoint"
    installed = package / "models" / "tiny"
    for folder in (source, installed):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        assert headrace.shipped_model() == str(folder)
