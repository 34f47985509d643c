"""headrace.ray on a local cluster of two workers, and what needs no cluster.

The cluster's tests are skipped where Ray isn't installed: pip install "headrace[ray]".
HEADRACE_RAY_ROWS says how many rows they have; 2000 is what a release needs."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HAS_ENGINE

from headrace import LLM, SamplingParams, shipped_model
from headrace.batch.job import BatchJob
from headrace.batch.progress import Progress
from headrace.batch.results import Results
from headrace.batch.rows import Source
from headrace.cli import batch_ray, main
from headrace.ray.config import HeadraceConfig

ROWS = int(os.environ.get("HEADRACE_RAY_ROWS", "300"))
engine = pytest.mark.skipif(not HAS_ENGINE, reason="the extension is not built")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is missing")


def config(**more: Any) -> HeadraceConfig:
    return HeadraceConfig(
        model=shipped_model(), engine_kwargs={"max_model_len": 256, "max_num_seqs": 8}, **more
    )


def test_the_arguments_of_engines_and_actors() -> None:
    made = HeadraceConfig(model="m", num_cpus=4, engine_kwargs={"dtype": "float32"})
    assert made.llm_arguments() == {"model": "m", "num_threads": 4, "dtype": "float32"}
    assert made.actor_options() == {
        "num_cpus": 4, "num_gpus": 0, "max_restarts": -1, "max_task_retries": -1,
    }  # fmt: skip
    assert HeadraceConfig(model="m", num_gpus=1).llm_arguments()["device"] == "cuda"
    made = HeadraceConfig(model="m", concurrency=3, runtime_env={"env_vars": {"A": "b"}})
    assert made.actor_options()["runtime_env"] == {"env_vars": {"A": "b"}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "m", "concurrency": 0}, "concurrency must be at least 1"),
        ({"model": "m", "concurrency": (1, 2)}, "concurrency must be at least 1"),
        ({"model": "m", "num_cpus": 0}, "num_cpus must be at least 1"),
        ({"model": "m", "num_gpus": -1}, "num_gpus must not be negative"),
    ],
)
def test_a_wrong_config_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadraceConfig(**given)


def node(cpus: int, gpus: int = 0) -> dict[str, Any]:
    return {"Resources": {"CPU": float(cpus), "GPU": float(gpus)}}


@pytest.mark.parametrize(
    ("nodes", "threads", "gpus", "room"),
    [
        ([node(8), node(8)], None, 0, (8, 2)),
        ([node(8), node(4)], None, 0, (4, 3)),
        ([node(8), node(4)], 2, 0, (2, 6)),
        ([node(8, 2), node(8)], None, 1, (4, 2)),
        ([node(8)], None, 1, (1, 0)),
        ([], None, 0, (1, 0)),
    ],
)
def test_how_many_engines_a_cluster_has_room_for(
    nodes: Any, threads: int | None, gpus: int, room: tuple[int, int]
) -> None:
    assert batch_ray._room(nodes, threads, gpus) == room


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of this machine: two engines, and a CPU for the rest."""
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=100 << 20,
    )
    yield ray
    ray.shutdown()


def actors(name: str) -> list[int]:
    """The process ids of the actors that run here."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes().decode(errors="replace")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if title.startswith("ray::") and name in title and parent != 1:
            found.append(int(folder.name))
    return sorted(found)


class Killer:
    """Kills one actor of a name once `due` says so."""

    def __init__(self, name: str, due: Any) -> None:
        self.killed: list[int] = []
        self._name, self._due, self._stop = name, due, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            found = actors(self._name) if self._due() else []
            if found:
                os.kill(found[0], signal.SIGKILL)
                self.killed.append(found[0])
                return


def question(row: dict[str, Any]) -> dict[str, Any]:
    number = int(row["id"])
    return {
        "messages": [{"role": "user", "content": f"What is {number % 50} + 1?"}],
        "sampling_params": {"temperature": 0.9, "seed": number, "max_tokens": 4 + number % 30},
    }


def texts(questions: list[dict[str, Any]]) -> list[str]:
    """What one engine, undisturbed, says to them."""
    with LLM(shipped_model(), max_model_len=256, num_threads=1) as llm:
        outputs = llm.chat(
            [one["messages"] for one in questions],
            [SamplingParams(**one["sampling_params"]) for one in questions],
            use_tqdm=False,
        )
        return [output.outputs.text for output in outputs]


@engine
@needs_ray
def test_a_batch_job_on_a_cluster_with_an_actor_killed(cluster: Any, tmp_path: Path) -> None:
    from headrace.ray.answerer import RayAnswerer

    with (tmp_path / "in").open("w") as file:
        for number in range(ROWS):
            body = question({"id": number})
            row = {"custom_id": str(number), "messages": body["messages"]}
            file.write(json.dumps({**row, **body["sampling_params"]}) + "\n")
        file.write("nonsense\n")
    answerer = RayAnswerer(config(concurrency=2), ["tiny"], window=32)
    output = tmp_path / "out"
    with (
        Results(output, tmp_path / "errors") as results,
        Killer("AnsweringActor", lambda: output.stat().st_size > 5000) as killer,
    ):
        job = BatchJob(Source(tmp_path / "in"), results, answerer, window=32)
        counts = asyncio.run(job.run(Progress(1, shown=False)))
    answerer.close()
    assert killer.killed
    assert (counts.completed, counts.failed) == (ROWS, 1)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert sorted(int(line["custom_id"]) for line in lines) == list(range(ROWS))
    expected = texts([question({"id": i}) for i in range(ROWS)])
    for line in lines:
        (choice,) = line["response"]["body"]["choices"]
        assert choice["message"]["content"] == expected[int(line["custom_id"])]


@engine
@needs_ray
def test_a_batch_job_on_a_cluster_from_the_shell(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text('{"prompt": "a", "max_tokens": 2}\n')
    files = [str(tmp_path / "in"), str(tmp_path / "out")]
    options = ["--ray", "--ray-workers", "2", "--threads", "1"]
    assert main(["batch", *files, *options]) == 0
    assert "1 rows answered, 0 failed" in capsys.readouterr().err
    assert main(["batch", *files, "--ray", "--ray-workers", "99"]) == 2
    assert "--ray-workers must be from 1 to" in capsys.readouterr().err
    assert main(["batch", *files, "--ray-workers", "2"]) == 2
    assert "--ray-workers needs --ray" in capsys.readouterr().err
