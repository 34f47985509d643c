"""MultiMediaInfo: tensors made elsewhere, their places, names and positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allspark_setup import GREEDY, NAME, OK, loader, prompt, running

from headrace import shipped_model
from headrace.allspark import AsStatus
from headrace.allspark._allspark import MultiMediaInfo
from headrace.allspark.serving.dlpack import read_floats
from headrace.allspark.serving.multimedia import MultiMediaError, media_inputs
from headrace.media import Grid

PAD, WIDTH = 9, 4
PROMPT = [1, PAD, PAD, 2, PAD, PAD, PAD, PAD, 3]


def rows(count: int, value: float = 1.0, dtype: Any = "float32") -> Any:
    return np.full((count, WIDTH), value, dtype)


def info(**content: Any) -> MultiMediaInfo:
    """Keys are "pad" (the placeholder's) and those of MultiMediaInfo."""
    made = MultiMediaInfo()
    for key, tensors in content.items():
        name = str(PAD) if key == "pad" else key
        assert made.add_multimedia_content(name, tensors) == AsStatus.ALLSPARK_SUCCESS
    return made


def read(made: MultiMediaInfo, prompt: list[int] = PROMPT) -> list[Any]:
    return media_inputs(made, prompt, WIDTH)


def test_tensors_take_the_runs_in_order() -> None:
    first, second = read(info(pad=[rows(2).__dlpack__(), rows(4, 2.0)]))
    assert [(run.position, run.count) for run in first.runs] == [(1, 2)]
    assert [(run.position, run.count) for run in second.runs] == [(4, 4)]
    assert first.runs[0].grid is None
    assert (first.video, second.video) == (False, False)
    # Two items may stand side by side, and placeholders may be several.
    assert len(read(info(pad=[rows(2), rows(1), rows(3)]))) == 3
    two = MultiMediaInfo()
    two.add_multimedia_content("8", [rows(1)])
    two.add_multimedia_content("7", [rows(2)])
    assert [item.runs[0].position for item in read(two, [7, 7, 8])] == [0, 2]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_kinds_of_numbers(dtype: str) -> None:
    data, height, width = read_floats(np.array([[1.5, -2.0], [0.25, 3.0]], dtype))
    assert (height, width) == (2, 2)
    assert np.frombuffer(data, "float32").tolist() == [1.5, -2.0, 0.25, 3.0]
    assert read_floats(np.zeros((1, 3, 2), dtype))[1:] == (3, 2)


def test_names_of_contents() -> None:
    def keys(*hashes: Any) -> list[bytes]:
        return [item.key for item in read(info(pad=[rows(2), rows(4)], hash_input=list(hashes)))]

    ids = np.array([5, 6], np.int32)
    one, two = keys(ids, ids)
    assert len(one) == 32
    assert one != two  # of other lengths
    assert keys(ids, ids) == [one, two]
    assert keys(np.array([5, 7], np.int32), ids)[0] != one


def test_positions_become_grids() -> None:
    # 1 text, 2 rows as text, 1 text, a grid of 2 x 2, 1 text behind it.
    axes = [
        [0, 1, 2, 3, 4, 4, 4, 4, 6],
        [0, 1, 2, 3, 4, 4, 5, 5, 6],
        [0, 1, 2, 3, 4, 5, 4, 5, 6],
    ]
    first, second = read(info(pad=[rows(2), rows(4)], positions=[np.array(axes, np.int32)]))
    assert first.runs[0].grid is None
    assert (tuple(second.runs[0].grid), list(second.runs[0].steps)) == (Grid(1, 2, 2), [0])


AXES = [list(range(len(PROMPT)))] * 3
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"pad": [rows(2)]}, "the prompt has 4 more 9 than mm_info has rows"),
    ({"pad": [rows(2), rows(5)]}, r"mm_info\['9'\]\[1\] has 5 rows, and the prompt no run"),
    ({"pad": [rows(3), rows(3)]}, r"mm_info\['9'\]\[0\] has 3 rows, and the prompt no run"),
    ({"pad": [np.ones((2, 5), "float32")]}, r"is \[2, 5\], the model has \[n, 4\]"),
    ({"pad": [np.ones((0, WIDTH), "float32")]}, r"is \[0, 4\]"),
    ({"pad": [np.ones((2, WIDTH), "int32")]}, "not float32, float16 or bfloat16"),
    ({"pad": [np.ones(8, "float32")]}, r"must be \[rows, hidden size\]"),
    ({"pad": [np.ones((4, WIDTH), "float32")[::2]]}, "contiguous"),
    ({"pad": [5]}, "can't be read"),
    ({"x": []}, "mm_info has 'x'"),
    ({"hash_input": [rows(1)]}, "hash_input has 1 tensors, and mm_info 0 runs"),
    ({"pad": [rows(2), rows(4)], "hash_input": [rows(1), rows(1)]}, "hash_input: "),
    ({"pad": [rows(2), rows(4)], "positions": [np.zeros((3, 2), np.int32)]}, r"tensor \[3, 9\]"),
    (
        {"pad": [rows(2), rows(4)], "positions": [np.array(AXES, np.int32) + 1]},
        "positions are not those of a prompt",
    ),
]


@pytest.mark.parametrize(("content", "words"), WRONG)
def test_what_does_not_fit(content: dict[str, Any], words: str) -> None:
    with pytest.raises(MultiMediaError, match=words):
        read(info(**content), [1, 2] if "x" in content else PROMPT)
    with pytest.raises(MultiMediaError, match="must be a MultiMediaInfo"):
        media_inputs(object(), PROMPT, WIDTH)


def embedding_rows(ids: list[int]) -> Any:
    """float32 rows of the shipped model's embedding, which is stored in bfloat16."""
    data = Path(shipped_model(), "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    (name,) = (key for key in header if key.endswith("embed_tokens.weight"))
    begin, end = header[name]["data_offsets"]
    assert header[name]["dtype"] == "BF16"
    halves = np.frombuffer(data[8 + size + begin : 8 + size + end], np.uint16)
    table = (halves.astype(np.uint32) << 16).view(np.float32).reshape(header[name]["shape"])
    return np.ascontiguousarray(table[ids])


def test_rows_of_the_embedding_answer_as_their_tokens_do() -> None:
    model = loader()
    engine = running(model, data_type="float32")
    ids = prompt(model)
    first, last = 2, 6
    try:

        def answer(tokens: list[int], **more: Any) -> Any:
            config = {**GREEDY, **more}
            status, handle, queue = engine.start_request(NAME, {"input_ids": [tokens]}, config)
            assert status == OK
            engine.sync_request(NAME, handle)
            made = list(queue.Get().ids_from_generate)
            engine.release_request(NAME, handle)
            return made

        plain = answer(ids)
        hidden = [*ids[:first], *[7] * (last - first), *ids[last:]]
        made = MultiMediaInfo()
        rows = embedding_rows(ids[first:last])
        made.add_multimedia_content("7", [rows.__dlpack__()])
        made.add_multimedia_content("hash_input", [np.array(ids[first:last], np.int32)])
        assert 7 not in ids
        assert answer(hidden, mm_info=made) == plain
        assert answer(hidden) != plain
        wrong = MultiMediaInfo()
        wrong.add_multimedia_content("7", [rows[:2]])
        status, handle, queue = engine.start_request(
            NAME, {"input_ids": [hidden]}, {**GREEDY, "mm_info": wrong}
        )
        assert (status, handle, queue) == (AsStatus.ALLSPARK_PARAM_ERROR, None, None)
    finally:
        engine.stop_model(NAME)
        engine.release_model(NAME)
