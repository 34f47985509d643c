"""Adapters through headrace.allspark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_folders import write_adapter
from allspark_setup import GREEDY, LONG, NAME, OK, loader, prompt, running

from headrace.allspark import AsStatus, Engine, HuggingFaceModel

PARAM = AsStatus.ALLSPARK_PARAM_ERROR


def query_adapter(folder: Path, rank: int, scale: float) -> Path:
    """A PEFT folder for the shipped model: every query projection, pushed hard."""
    a = np.array([((i * 7) % 13 - 6) / 13 for i in range(rank * 192)]).reshape(rank, 192)
    b = np.array([scale * ((i * 5) % 11 - 5) / 11 for i in range(192 * rank)]).reshape(192, rank)
    halves = {f"model.layers.{layer}.self_attn.q_proj": (a, b) for layer in range(6)}
    return write_adapter(folder, halves, ["q_proj"])


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    return loader()


@pytest.fixture(scope="module")
def engine(model: HuggingFaceModel) -> Iterator[Engine]:
    own = running(model, lora_max_num=2, lora_max_rank=8)
    yield own
    own.release_model(NAME)


@pytest.fixture
def adapters(tmp_path: Path, engine: Engine) -> Iterator[list[str]]:
    yield [str(query_adapter(tmp_path / name, 4, 3.0)) for name in ("one", "two", "three")]
    for name in ("one", "two", "three"):
        engine.unload_lora(NAME, name)


def answer(engine: Engine, model: HuggingFaceModel, **values: Any) -> list[int]:
    status, handle, queue = engine.start_request_ids(
        NAME, model, prompt(model), {**GREEDY, **values}
    )
    assert status == OK
    engine.sync_request(NAME, handle)
    assert engine.release_request(NAME, handle) == OK
    tokens: list[int] = queue.Get().ids_from_generate
    return tokens


def test_adapters(engine: Engine, model: HuggingFaceModel, adapters: list[str]) -> None:
    plain = answer(engine, model)
    assert engine.start_request_ids(NAME, model, [5], {**GREEDY, "lora_name": "one"}) == (
        AsStatus.ALLSPARK_LORA_NOT_FOUND,
        None,
        None,
    )
    assert engine.load_lora(NAME, adapters[0]) == OK
    changed = answer(engine, model, lora_name="one")
    assert changed != plain
    assert answer(engine, model, lora_name=adapters[0]) == changed  # by path or by name
    assert answer(engine, model) == plain
    assert engine.unload_lora(NAME, "one") == OK
    assert engine.unload_lora(NAME, "one") == AsStatus.ALLSPARK_LORA_NOT_FOUND


def test_adapter_statuses(
    engine: Engine, model: HuggingFaceModel, adapters: list[str], tmp_path: Path
) -> None:
    one, two, three = adapters
    assert engine.load_lora(NAME, "") == PARAM
    assert engine.load_lora("nothing", one) == engine.unload_lora("nothing", one) == PARAM
    assert engine.load_lora(NAME, "nowhere") == AsStatus.ALLSPARK_LORA_NOT_FOUND
    assert engine.load_lora(NAME, one) == OK
    assert engine.load_lora(NAME, one) == AsStatus.ALLSPARK_LORA_ALREADY_LOADED
    wide = str(query_adapter(tmp_path / "wide", 16, 1.0))
    assert engine.load_lora(NAME, wide) == AsStatus.ALLSPARK_LORA_RANK_EXCEED_LIMIT_ERROR
    (tmp_path / "empty").mkdir()
    assert engine.load_lora(NAME, str(tmp_path / "empty")) != OK
    assert engine.load_lora(NAME, two + ".aslora") == OK
    assert engine.load_lora(NAME, three) == AsStatus.ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR
    status, handle, queue = engine.start_request_ids(
        NAME, model, prompt(model), {**LONG, "lora_name": "two"}
    )
    assert status == OK
    queue.Get()
    assert engine.unload_lora(NAME, "two") == AsStatus.ALLSPARK_LORA_IN_USE
    assert engine.load_lora(NAME, two) == AsStatus.ALLSPARK_LORA_IN_USE
    assert engine.release_request(NAME, handle) == OK  # also one that was cut short lets go
    assert engine.unload_lora(NAME, "two") == OK


def test_adapters_known_to_a_loader(engine: Engine, adapters: list[str]) -> None:
    base = Path(adapters[0]).parent
    cfg = {"input_base_dir": str(base), "lora_names": ["one"], "lora_only": False}
    loader().serialize_to_memory(engine, lora_cfg=cfg)
    assert engine.load_lora(NAME, "one") == OK
