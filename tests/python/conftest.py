"""Fixtures: a tiny tokenizer folder, and an LLM over the fake engine."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("headrace") is None:
    sys.path.insert(0, str(ROOT / "python"))
SUPPORT = str(Path(__file__).parent / "support")
sys.path[:0] = [str(Path(__file__).parent), SUPPORT]

# Each HTTP client reads the system's certificates, which takes 30 ms. Tests need none: they read a
# folder that has none.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = SUPPORT

import fake_core  # noqa: E402

# Background jobs of a shell start with SIGINT ignored, and so would the tests that raise it.
signal.signal(signal.SIGINT, signal.default_int_handler)

import native_model  # noqa: E402
from model_folders import byte_level_folder  # noqa: E402

from headrace import LLM, Engine, native  # noqa: E402
from headrace.native import (  # noqa: E402
    config,
    engine,
    media,
    queue,
    request,
    selector,
    text_reader,
    wakeup,
)

CORE_USERS = (config, engine, media, queue, request, selector, text_reader, wakeup)


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder for the fake engine: config, byte-level tokenizer, chat template."""
    return byte_level_folder(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """headrace over fake_core; its script is reset afterwards."""
    for module in CORE_USERS:
        monkeypatch.setattr(module, "_core", fake_core)
    for name in (
        "HeadraceError",
        "LogprobsKind",
        "MediaInput",
        "MediaRun",
        "ModelOptions",
        "SpeculativeOptions",
    ):
        monkeypatch.setattr(native, name, getattr(fake_core, name))
    monkeypatch.setattr(fake_core, "script", None)
    monkeypatch.setattr(fake_core, "prefix_hits", 0)
    monkeypatch.setattr(fake_core, "submitted_media", [])
    return fake_core


@pytest.fixture
def make_llm(fake_engine: Any, toy_folder: Path) -> Iterator[Callable[..., LLM]]:
    """LLM(toy_folder, **kwargs) over the fake engine, closed at the end of the test."""
    made: list[LLM] = []

    def make(folder: Path = toy_folder, **kwargs: Any) -> LLM:
        made.append(LLM(str(folder), **kwargs))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture
def llm(make_llm: Callable[..., LLM]) -> LLM:
    return make_llm()


@pytest.fixture(scope="session")
def native_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder for the real engine: tiny, random weights, with a tokenizer."""
    return native_model.make_folder(tmp_path_factory.mktemp("native"))


@pytest.fixture
def native_engine(native_folder: Path) -> Iterator[Engine]:
    """An engine with the model "m" running."""
    with Engine() as engine:
        engine.install_model("m", native_model.options(native_folder))
        engine.start_model("m")
        yield engine


# A file that imports one of these depends on threads, time or load.
TIMING_MODULES = {"asyncio", "multiprocessing", "signal", "subprocess", "threading", "time"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that tests/repeat.py runs many times beside busy neighbours."""
    for item in items:
        if TIMING_MODULES & vars(getattr(item, "module", None) or object).keys():
            item.add_marker("threads")
