"""RequestOutput and its parts as plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace import CompletionOutput, RequestMetrics, RequestOutput
from headrace.llm.outputs import Logprob, LogprobsLists, SpeculateMetrics


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
    with pytest.raises(KeyError):
        del output["nothing"]


def test_what_is_set_by_key_goes_to_the_parts_first() -> None:
    output = whole()
    output["text"] = "y"
    output.set("model_forward_time", 2.5)
    output["mine"] = [1]  # a new key: the result's own
    assert output.outputs is not None
    assert output.metrics is not None
    assert (output.outputs.text, output.metrics.model_forward_time) == ("y", 2.5)
    assert (output["mine"], vars(output)["mine"]) == ([1], [1])
    assert output.get(key="nothing", default_value=3) == 3


def test_what_is_deleted_by_key_is_gone() -> None:
    output = whole()
    for key in ("error_msg", "text", "arrival_time", "outputs"):
        assert key in output
        del output[key]
        assert key not in output
        with pytest.raises(KeyError):
            output[key]
    assert RequestOutput("other").error_msg is None  # nobody else's is


def test_parts_by_key() -> None:
    completion = CompletionOutput(0, 3, [5, 6], text="x")
    assert (completion["send_idx"], completion.get("nothing", default_value=1)) == (3, 1)
    completion["text"] = "y"
    completion.set(key="index", value=2)
    assert (completion.text, completion.index, "text" in completion) == ("y", 2, True)
    metrics = RequestMetrics()
    metrics["preempted_count"] = 4
    assert (metrics.preempted_count, metrics.get(key="time_in_queue")) == (4, None)
    assert metrics.arrival_time is not None  # now
    for part in (completion, metrics):
        with pytest.raises(KeyError):
            part["nothing"]
        with pytest.raises(KeyError):
            part["nothing"] = 1


def test_parts_to_json_and_back() -> None:
    rows = LogprobsLists([[5, 6]], [[-0.5, -1.0]], [1])
    completion = CompletionOutput(
        token_ids=[5],
        logprobs=[{5: Logprob(-0.5, 1, "t"), 6: Logprob(-1.0, 2)}],
        top_logprobs=rows,
        draft_top_logprobs=rows,
        speculate_metrics=SpeculateMetrics(1, 2, 0.5, 1.5, [1], [0.5]),
        tool_calls=[{"function": {"name": "f"}}],
    )
    output = RequestOutput(
        "id",
        outputs=completion,
        prompt_logprobs=[None, {7: Logprob(-2.0, 3, "u")}],
        metrics=RequestMetrics(arrival_time=2.0),
    )
    assert output.accumulate_tool_calls == [completion.tool_calls]
    assert RequestOutput.from_dict(d=json.loads(json.dumps(output.to_dict()))) == output
    assert CompletionOutput.from_dict(req_dict=completion.to_dict()) == completion
    assert output.metrics is not None
    assert RequestMetrics.from_dict(req_dict=output.metrics.to_dict()) == output.metrics
    assert rows.slice_columns(1, 2) == LogprobsLists([[6]], [[-1.0]], [1])
    assert rows.slice_rows(1, 2) == LogprobsLists([], [], [])


def test_what_add_and_accumulate_keep() -> None:
    def increment(token: int, **more: Any) -> RequestOutput:
        rows = LogprobsLists([[token]], [[-1.0]], [1])
        completion = CompletionOutput(
            token_ids=[token],
            text=f"t{token}",
            reasoning_content=f"r{token}",
            draft_token_ids=[token],
            draft_top_logprobs=rows,
            tool_calls=[token],
        )
        metrics = RequestMetrics(arrival_time=token, model_forward_time=more.pop("time", None))
        return RequestOutput("id", outputs=completion, metrics=metrics, **more)

    total = increment(1, prompt="p", prompt_token_ids=[9], time=1.5)
    total.accumulate(next_output=increment(2))
    completion = total.outputs
    assert completion is not None
    assert (completion.text, completion.reasoning_content) == ("t1t2", "r1r2")
    assert completion.draft_token_ids == [1, 2]
    assert completion.draft_top_logprobs == LogprobsLists([[1], [2]], [[-1.0]] * 2, [1, 1])
    assert total.accumulate_tool_calls == [[1], [2]]
    total.add(next_output=increment(3, time=4.0, finished=True))  # as the original's: no texts
    total.add(increment(4))
    assert (completion.text, completion.token_ids) == ("t1t2", [1, 2, 3, 4])
    assert (total.finished, total.prompt, total.prompt_token_ids) == (True, "p", [9])
    assert total.metrics is not None
    assert (total.metrics.arrival_time, total.metrics.model_forward_time) == (1, 4.0)
    empty = RequestOutput("id")
    empty.accumulate(increment(5))
    assert (empty["text"], empty["model_forward_time"]) == ("t5", None)


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
    total.accumulate(increment([], "d", finished=True, num_cached_tokens=64))
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
