"""headrace.ray on a local cluster of two workers: datasets, services, batch jobs.

Skipped where Ray isn't installed (the stage `ray` of tests/run installs it).
HEADRACE_RAY_ROWS says how many rows a job has; 2000 is what a release needs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace import LLM, SamplingParams, shipped_model
from headrace.batch.job import BatchJob
from headrace.batch.progress import Progress
from headrace.batch.results import Results
from headrace.batch.rows import Source
from headrace.cli import main
from headrace.ray import HeadraceConfig, build_processor, serve_app

pytest.importorskip("ray")
ROWS = int(os.environ.get("HEADRACE_RAY_ROWS", "300"))


def config(**more: Any) -> HeadraceConfig:
    return HeadraceConfig(
        model=shipped_model(), engine_kwargs={"max_model_len": 256, "max_num_seqs": 8}, **more
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of this machine: two engines, and a CPU for the rest."""
    # A machine that other tests keep busy starts processes slowly.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "120")
    import ray

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


def test_a_dataset_with_an_actor_killed(cluster: Any, tmp_path: Path) -> None:
    """The rows come out as one engine, undisturbed, answers them."""
    done = tmp_path / "done"
    done.touch()

    def answered(row: dict[str, Any]) -> dict[str, Any]:
        with done.open("ab") as file:
            file.write(b".")
        return {
            "id": row["id"],
            "text": row["generated_text"],
            "counted": row["num_generated_tokens"] == len(row["generated_tokens"]),
            "asked": row["messages"][0]["content"],
        }

    processor = build_processor(config(concurrency=2, batch_size=8), question, answered)
    with Killer("EngineStage", lambda: done.stat().st_size >= ROWS // 10) as killer:
        rows = processor(cluster.data.range(ROWS)).take_all()
    assert killer.killed
    rows.sort(key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert all(row["counted"] for row in rows)
    assert rows[7]["asked"] == "What is 7 + 1?"
    assert [row["text"] for row in rows] == texts([question({"id": i}) for i in range(ROWS)])


def test_rows_that_cannot_be_answered(cluster: Any) -> None:
    """With columns of its own in each row, which Arrow gives to all of them."""
    given: list[dict[str, Any]] = [
        {"id": 0, "prompt": "User: Hi", "sampling_params": {"max_tokens": 2, "temperature": 0}},
        {"id": 1, "prompt": "User: Hi", "sampling_params": {"max_tokens": -1}},
        {"id": 2, "prompt": "x " * 2000},
        {"id": 3, "tokenized_prompt": [5, 6, 7], "sampling_params": {"max_tokens": 3}},
        {"id": 4, "prompt": "a", "sampling_params": {"guided_decoding": {"choice": ["b"]}}},
        {"id": 5},
    ]
    rows = cluster.data.from_items(given)
    kept = build_processor(config(concurrency=(1, 2), should_continue_on_error=True))(rows)
    answers = sorted(kept.take_all(), key=lambda row: row["id"])
    failed = [bool(answer["__inference_error__"]) for answer in answers]
    assert failed == [False, True, True, False, False, True]
    assert "max_tokens" in answers[1]["__inference_error__"]
    assert "messages, prompt, tokenized_prompt" in answers[5]["__inference_error__"]
    assert answers[3]["num_input_tokens"] == 3
    assert answers[4]["generated_text"] == "b"
    strict = build_processor(config(), lambda row: {"prompt": "x", "tools": []})
    with pytest.raises(Exception, match="tools needs messages"):
        strict(cluster.data.range(2)).take_all()


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] | trim }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


def test_a_dataset_under_a_template_and_an_environment_of_its_own(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Ray tests of its own processors: columns that come through, and those that don't."""

    def asked(row: dict[str, Any]) -> dict[str, Any]:
        system = {"role": "system", "content": "You are a calculator"}
        return {
            "scratch": row["id"] + 5,
            "messages": [system, {"role": "user", "content": f"{row['id']} ** 3 = ?"}],
            "sampling_params": {"temperature": 0.3, "seed": 5, "max_tokens": 10},
        }

    engine = {"max_model_len": 256, "chat_template": CHAT_TEMPLATE}
    environment = {"env_vars": {"HEADRACE_CPU_ISA": "baseline"}}
    processor = build_processor(
        HeadraceConfig(
            model=shipped_model(), engine_kwargs=engine, runtime_env=environment, batch_size=16
        ),
        asked,
        lambda row: {"id": row["id"], "value": row["value"], "answer": row["generated_text"]},
    )
    rows = cluster.data.range(60).map(lambda row: {"id": row["id"], "value": row["id"] * 2})
    answers = sorted(processor(rows).materialize().take_all(), key=lambda row: row["id"])
    assert [set(row) for row in answers] == [{"id", "value", "answer"}] * 60
    assert [row["value"] for row in answers] == [2 * i for i in range(60)]
    monkeypatch.setenv("HEADRACE_CPU_ISA", "baseline")
    with LLM(shipped_model(), num_threads=1, **engine) as llm:
        given = [asked({"id": i}) for i in range(60)]
        outputs = llm.chat(
            [one["messages"] for one in given],
            [SamplingParams(**one["sampling_params"]) for one in given],
            use_tqdm=False,
        )
    assert [row["answer"] for row in answers] == [output.outputs.text for output in outputs]


def test_a_dataset_of_embeddings(cluster: Any) -> None:
    def asked(row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": f"{row['id']} ** 3 = ?"}

    def answered(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], "prompt": row["prompt"], "embedding": row["embeddings"]}

    processor = build_processor(config(task_type="embed", batch_size=16), asked, answered)
    rows = sorted(processor(cluster.data.range(60)).take_all(), key=lambda row: row["id"])
    with LLM(shipped_model(), max_model_len=256, num_threads=1) as llm:
        outputs = llm.embed([asked({"id": i})["prompt"] for i in range(60)])
    assert [row["prompt"] for row in rows] == [output.prompt for output in outputs]
    assert [list(row["embedding"]) for row in rows] == [o.outputs.embedding for o in outputs]
    keeping = config(task_type="embed", should_continue_on_error=True)
    given = [{"prompt": "a", "sampling_params": {"max_tokens": 1}}, {"tokenized_prompt": [5, 6]}]
    kept = build_processor(keeping)(cluster.data.from_items(given)).take_all()
    said = sorted(row["__inference_error__"] for row in kept)
    assert said[0] == ""
    assert said[1].startswith("an embedding is of prompt or tokenized_prompt")


@pytest.fixture(scope="module")
def served(cluster: Any) -> Iterator[str]:
    """The address of two applications: /plain of one replica, and / of two behind a router."""
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for attempt in range(4):  # Serve gives its processes a minute, which a busy machine may need
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            break
        except (TimeoutError, cluster.exceptions.RayError):
            if attempt == 3:
                raise
    serve.run(serve_app(config(), names=["tiny"]), name="plain", route_prefix="/plain")
    serve.run(serve_app(config(concurrency=2), prefix_aware=True), name="routed")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


@pytest.mark.parametrize("path", ["", "/plain"])
def test_a_served_application(served: str, path: str) -> None:
    messages = [{"role": "user", "content": "What is 12 + 7?"}]
    body: dict[str, Any] = {"messages": messages, "temperature": 0}
    (expected,) = texts([{"messages": messages, "sampling_params": {"temperature": 0}}])
    with httpx.Client(base_url=served + path, timeout=120) as api:
        cards = api.get("/v1/models").json()["data"]
        assert cards[0]["id"] == ("tiny" if path else Path(shipped_model()).name)
        for _ in range(3):
            answer = api.post("/v1/chat/completions", json=body).json()
            assert answer["choices"][0]["message"]["content"] == expected
        pieces = []
        with api.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as got:
            for line in got.iter_lines():
                if line.startswith("data: {"):
                    pieces.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")
        assert "".join(pieces) == expected
        assert len(pieces) >= 2
        wrong = api.post("/v1/chat/completions", json={**body, "model": "other"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (404, "model_not_found")
        long = api.post("/v1/chat/completions", content=b"x" * (17 << 20))
        assert long.status_code in (413, 415)
        assert "<html" in api.get("/").text


def test_a_client_that_leaves_ends_its_request(served: str) -> None:
    body = {"prompt": "User: ", "max_tokens": 200, "ignore_eos": True, "stream": True, "n": 8}
    with httpx.Client(base_url=f"{served}/plain", timeout=120) as api:
        for _ in range(3):
            with api.stream("POST", "/v1/completions", json=body) as got:
                next(got.iter_lines())
        while "headrace_http_running 0.0" not in api.get("/metrics").text:
            time.sleep(0.05)
        tokens = re.search(r"headrace_tokens_total.*generated.* (\S+)", api.get("/metrics").text)
    assert tokens is not None
    assert float(tokens[1]) < 3 * 8 * 200
