"""RequestOutput and its parts as plain data."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CompletionOutput, RequestMetrics, RequestOutput
from headrace.outputs import Logprob, LogprobsLists


def test_defaults() -> None:
    output = RequestOutput("id")
    expected: dict[str, Any] = {
        "prompt": None,
        "prompt_token_ids": [],
        "prompt_logprobs": None,
        "output_type": 3,
        "outputs": None,
        "finished": False,
        "metrics": None,
        "num_cached_tokens": 0,
        "num_input_image_tokens": 0,
        "num_input_video_tokens": 0,
        "error_code": 200,
        "error_msg": None,
        "ic_req_data": None,
        "prompt_token_ids_len": 0,
        "trace_carrier": {},
    }
    assert {name: getattr(output, name) for name in expected} == expected


def test_prompt_token_ids_become_a_list() -> None:
    class Array:
        def tolist(self) -> list[int]:
            return [1, 2]

    assert RequestOutput("id", prompt_token_ids=None).prompt_token_ids == []  # type: ignore[arg-type]
    output = RequestOutput("id", prompt_token_ids=Array())  # type: ignore[arg-type]
    assert (output.prompt_token_ids, output.prompt_token_ids_len) == ([1, 2], 2)


def whole() -> RequestOutput:
    return RequestOutput(
        "id",
        prompt="p",
        prompt_token_ids=[1],
        outputs=CompletionOutput(token_ids=[5], text="x", finish_reason="stop"),
        metrics=RequestMetrics(arrival_time=1.5),
        finished=True,
    )


def test_dict_and_back() -> None:
    values = whole().to_dict()
    assert values["outputs"]["text"] == "x"
    assert values["metrics"]["arrival_time"] == 1.5
    assert RequestOutput.from_dict({**values, "unknown": 1}) == whole()


def test_access_by_key() -> None:
    output = whole()
    assert (output["prompt"], output["text"], output["arrival_time"]) == ("p", "x", 1.5)
    assert output.get("nothing", 7) == 7
    assert "finish_reason" in output
    assert "nothing" not in output
    output["error_msg"] = "e"
    output.set("error_code", 500)
    assert (output.error_msg, output.error_code) == ("e", 500)
    with pytest.raises(KeyError):
        output["nothing"]


def test_add_joins_increments() -> None:
    def increment(ids: list[int], text: str, **more: Any) -> RequestOutput:
        completion = CompletionOutput(
            token_ids=ids,
            text=text,
            completion_tokens=text,
            logprobs=[{i: Logprob(-1.0, 1, "t")} for i in ids],
            top_logprobs=LogprobsLists([[i] for i in ids], [[-1.0] for _ in ids], [1 for _ in ids]),
            logprob=-1.0 if ids else None,
            finish_reason="stop" if more.get("finished") else None,
        )
        return RequestOutput("id", outputs=completion, **more)

    total = increment([1], "a")
    first = total.outputs
    assert first is not None
    kept = first.token_ids
    total.accumulate(increment([2, 3], "bc"))
    total.add(increment([], "d", finished=True, num_cached_tokens=64))
    assert first.token_ids == [1, 2, 3]
    assert kept == [1]  # the increment's own list stays as it was
    assert (first.text, first.completion_tokens) == ("abcd", "abcd")
    assert [next(iter(entry)) for entry in first.logprobs or []] == [1, 2, 3]
    assert first.top_logprobs == LogprobsLists([[1], [2], [3]], [[-1.0]] * 3, [1, 1, 1])
    assert first.logprob == -1.0
    assert (first.finish_reason, total.finished, total.num_cached_tokens) == ("stop", True, 64)


def test_metrics_to_dict() -> None:
    assert RequestMetrics(preempted_count=2).to_dict()["preempted_count"] == 2


def test_the_first_pages_spelling() -> None:
    assert CompletionOutput(reasoning_content="so").resoning_content == "so"
