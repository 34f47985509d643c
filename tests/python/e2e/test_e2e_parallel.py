"""Several devices for one model, and several replicas of one, on groups of CPU threads, through
every way in from Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import LLM, Engine, ModelOptions, SamplingParams, shipped_model

ENCODERS = Path(__file__).resolve().parents[2] / "golden/encoders"
OPTIONS = {"device": "cpu", "num_threads": 2, "max_model_len": 256}
PROMPTS = ["User: What is 2 + 3?\nAssistant: ", "User: Count from 1 to 4.\nAssistant: "]
GREEDY = SamplingParams(temperature=0, max_tokens=24)


def answers(**options: object) -> list[list[int]]:
    with LLM(shipped_model(), **{**OPTIONS, **options}) as llm:
        for name in ("tensor_parallel_size", "data_parallel_size"):
            assert getattr(llm.model_info, name) == options.get(name, 1)
        return [list(output.outputs.token_ids) for output in llm.generate(PROMPTS, GREEDY)]


def test_two_ranks_answer_as_one_device() -> None:
    alone = answers()
    assert answers(tensor_parallel_size=2) == alone
    config = {"method": "ngram", "num_speculative_tokens": 4}
    assert answers(tensor_parallel_size=2, speculative_config=config) == alone


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_two_ranks_embed_as_one_device(name: str) -> None:
    rows = []
    for ranks in (1, 2):
        folder = str(ENCODERS / name)
        with LLM(folder, dtype="float32", device="cpu", tensor_parallel_size=ranks) as llm:
            (output,) = llm.embed([{"prompt_token_ids": [5, 9, 12, 7, 33, 21]}])
            rows.append(output.outputs.embedding)
    assert rows[1] == pytest.approx(rows[0], abs=1e-5)
    assert any(rows[0])


def test_replicas_answer_as_one_does() -> None:
    alone = answers()
    assert answers(data_parallel_size=2) == alone
    assert answers(data_parallel_size=2, tensor_parallel_size=2, num_threads=4) == alone


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel_size": 7}, "7 devices can't share equally"),
        ({"tensor_parallel_size": 2, "num_threads": 1}, "num_threads is 1"),
        ({"enable_expert_parallel": True}, "enable_expert_parallel"),
        ({"tensor_parallel_size": 0}, r"tensor_parallel_size must be in \[1, 64\]"),
        ({"data_parallel_size": 0}, r"data_parallel_size must be in \[1, 64\]"),
        ({"data_parallel_size": 16, "tensor_parallel_size": 8}, "number of devices.*got 128"),
        ({"data_parallel_size": 9}, "num_threads is 8"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        LLM(shipped_model(), **{**OPTIONS, "num_threads": 8, **options})


def test_devices_by_name() -> None:
    with Engine() as engine:
        options = ModelOptions(path=str(shipped_model()), num_threads=2, devices=["cpu:0", "cpu:1"])
        engine.install_model("m", options)
        assert engine.model_info("m").tensor_parallel_size == 2


def test_requests_are_shared_out_to_replicas() -> None:
    with Engine() as engine:
        options = ModelOptions(
            path=str(shipped_model()),
            num_threads=2,
            devices=["cpu:0", "cpu:1"],
            data_parallel_size=2,
        )
        engine.install_model("m", options)
        engine.start_model("m")
        assert engine.model_stats("m").running_replicas == 2
        requests = [engine.submit("m", [5 + i, 6, 7]) for i in range(4)]
        for request in requests:
            request.wait()
        used = {request.results().stats().replica for request in requests}
        assert used == {0, 1}


def test_the_command_line() -> None:
    command = [sys.executable, "-m", "headrace", "info", str(shipped_model()), "--load", "--json"]
    found = subprocess.run(
        [
            *command,
            "--device",
            "cpu",
            "--threads",
            "4",
            "--tensor-parallel-size",
            "2",
            "--data-parallel-size",
            "2",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = json.loads(found.stdout)
    assert told["tensor_parallel_size"] == 2
    assert told["data_parallel_size"] == 2
