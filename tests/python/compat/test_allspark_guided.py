"""response_format through headrace.allspark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from allspark_setup import GREEDY, NAME, OK, loader, prompt, running

from headrace.allspark import AsStatus, Engine, HuggingFaceModel

PARAM = AsStatus.ALLSPARK_PARAM_ERROR


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    return loader()


@pytest.fixture(scope="module")
def engine(model: HuggingFaceModel) -> Iterator[Engine]:
    own = running(model)
    yield own
    own.release_model(NAME)


def answer(engine: Engine, model: HuggingFaceModel, **values: Any) -> list[int]:
    status, handle, queue = engine.start_request_ids(
        NAME, model, prompt(model), {**GREEDY, **values}
    )
    assert status == OK
    engine.sync_request(NAME, handle)
    assert engine.release_request(NAME, handle) == OK
    tokens: list[int] = queue.Get().ids_from_generate
    return tokens


SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [3, 4]}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
    # Or a model as small as this may go on with blanks until max_length.
    "x-guidance": {"whitespace_flexible": False},
}


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)], ids=["dict", "text"])
def test_json_by_a_schema(engine: Engine, model: HuggingFaceModel, schema: Any) -> None:
    wanted = {"type": "json_object", "json_schema": schema}
    plain = answer(engine, model)
    neighbour = engine.start_request_ids(NAME, model, prompt(model), GREEDY)
    for seed in range(5):
        tokens = answer(engine, model, response_format=wanted, seed=seed, top_k=0, max_length=200)
        value = json.loads(model.get_tokenizer().decode(tokens, skip_special_tokens=True))
        assert set(value) == {"n", "ok"}
        assert value["n"] in (3, 4)
    engine.sync_request(NAME, neighbour[1])
    assert neighbour[2].Get().ids_from_generate == plain
    engine.release_request(NAME, neighbour[1])


def test_bad_response_formats(engine: Engine) -> None:
    for wanted in (
        {"type": "yaml"},
        {"json_schema": "{}"},
        {"type": "json_object", "json_schema": "{"},
        {"type": "json_object", "json_schema": {"type": "nonsense"}},
        "json",
    ):
        values = {**GREEDY, "response_format": wanted}
        assert engine.start_request_ids(NAME, None, [5], values) == (PARAM, None, None)


def test_a_format_of_nothing_is_free(engine: Engine, model: HuggingFaceModel) -> None:
    assert answer(engine, model, response_format={}) == answer(engine, model)
