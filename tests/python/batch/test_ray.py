"""What of headrace.ray needs no Ray (test_ray_cluster.py has the rest)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import LLM, shipped_model
from headrace.cli import batch_ray
from headrace.ray import HeadraceConfig, numa, serve_app
from headrace.ray.beginnings import beginning_of
from headrace.ray.replica import Forwarded, Front, Replica
from headrace.ray.rows import ANSWER, ERROR, REQUEST, Postprocess, Preprocess, read_request
from headrace.ray.stage import EngineStage
from headrace.server import ServerConfig


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
        ({"model": "m", "concurrency": (2, 1)}, "concurrency must be at least 1"),
        ({"model": "m", "concurrency": (0, 1)}, "concurrency must be at least 1"),
        ({"model": "m", "concurrency": True}, "concurrency must be at least 1"),
        ({"model": "m", "batch_size": 0}, "batch_size must be at least 1"),
        ({"model": "m", "numa": True, "num_gpus": 1}, "numa is for engines on CPUs"),
        ({"model": "m", "num_cpus": 0}, "num_cpus must be at least 1"),
        ({"model": "m", "num_gpus": -1}, "num_gpus must not be negative"),
        (
            {"model": "m", "num_gpus": 2, "engine_kwargs": {"tensor_parallel_size": 4}},
            "num_gpus is 2, but each engine takes 4 GPUs",
        ),
        ({"model": "m", "task_type": "classify"}, 'task_type must be "generate" or "embed"'),
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
        ([node(8, 4)], None, 2, (4, 2)),
        ([node(8, 4), node(8, 3), node(8, 1)], None, 2, (4, 3)),
        ([node(8, 4)], 3, 2, (3, 2)),
        ([node(8, 1)], None, 2, (1, 0)),
        ([], None, 0, (1, 0)),
    ],
)
def test_how_many_engines_a_cluster_has_room_for(
    nodes: Any, threads: int | None, gpus: int, room: tuple[int, int]
) -> None:
    assert batch_ray._room(nodes, threads, gpus) == room


class Numbers:
    """A NumPy array, as Ray gives rows them."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def tolist(self) -> list[Any]:
        return list(self._items)


def test_rows_there_and_back() -> None:
    def ask(row: dict[str, Any]) -> dict[str, Any]:
        return {"messages": Numbers({"role": "user", "content": row["text"], "name": None}),
                "sampling_params": {"seed": 1, "stop": None}, "note": 5}  # fmt: skip

    row = Preprocess(ask)({"text": "Hi", "prompt_column": b"kept"})
    request = read_request(row[REQUEST])
    assert request == {
        "messages": [{"role": "user", "content": "Hi"}], "sampling_params": {"seed": 1},
    }  # fmt: skip
    assert (row["note"], row["prompt_column"]) == (5, b"kept")
    row[ANSWER] = json.dumps({"generated_text": "Yes", ERROR: ""})
    whole = Postprocess(None, keeps_errors=False)(row)
    assert (whole["generated_text"], whole["prompt_column"]) == ("Yes", b"kept")
    assert whole["messages"][0]["content"] == "Hi"
    assert not {REQUEST, ANSWER, ERROR} & whole.keys()
    shown = Postprocess(lambda row: {"said": row["generated_text"]}, keeps_errors=True)(row)
    assert shown == {"said": "Yes", ERROR: ""}
    row[ANSWER] = json.dumps({ERROR: "too long"})
    failed = Postprocess(lambda row: {"said": row["generated_text"]}, keeps_errors=True)(row)
    assert failed[ERROR] == "too long"
    assert failed["text"] == "Hi"


def test_a_batch_of_embeddings() -> None:
    """What an actor does with a batch, without a cluster."""
    pyarrow = pytest.importorskip("pyarrow")
    engine = {"max_model_len": 256}
    config = HeadraceConfig(
        model=shipped_model(),
        engine_kwargs=engine,
        task_type="embed",
        should_continue_on_error=True,
    )
    bad = {"prompt": "a", "sampling_params": {"max_tokens": 1}}
    rows: list[dict[str, Any]] = [{"prompt": "a b"}, {"tokenized_prompt": [5, 6]}, bad]
    requests = [Preprocess(None, True)(row)[REQUEST] for row in rows]

    async def answers() -> list[dict[str, Any]]:
        stage = EngineStage(config)
        async for table in stage(pyarrow.table({REQUEST: requests})):
            return [json.loads(text) for text in table.column(ANSWER).to_pylist()]
        return []

    first, second, failed = asyncio.run(answers())
    with LLM(shipped_model(), num_threads=1, **engine) as llm:
        expected = llm.embed(["a b", [5, 6]])
    assert first["embeddings"] == expected[0].outputs.embedding
    assert second["embeddings"] == expected[1].outputs.embedding
    assert second["num_input_tokens"] == 2
    message = "an embedding is of prompt or tokenized_prompt: leave out sampling_params"
    assert failed == {"__inference_error__": message}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "a row needs one of messages, prompt, tokenized_prompt"),
        ({"prompt": "a", "messages": []}, "this has"),
        ({"prompt": "a", "sampling_params": [1]}, "sampling_params must be a dict"),
        ({"prompt": "a", "sampling_params": {"n": 2}}, "n must be 1"),
        ({"prompt": "a", "sampling_params": {"logprobs": 2}}, "logprobs has no column"),
        ({"prompt": "a", "tool_choice": "auto"}, "tool_choice needs messages"),
    ],
)
def test_requests_that_no_engine_sees(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_request(json.dumps(request_))
    with pytest.raises(ValueError, match="is no JSON"):
        Preprocess(None)({"prompt": object()})
    kept = Preprocess(None, keeps_errors=True)({"prompt": float("nan"), "id": 7})
    assert kept["id"] == 7
    with pytest.raises(ValueError, match="no JSON"):
        read_request(kept[REQUEST])


def test_a_numa_node_for_each_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("HEADRACE_NUMA_NODES", f"{cpus[0]};60000-60007;{cpus[-1]}")
    monkeypatch.setattr(numa.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(numa, "_SECONDS_TO_WAIT", 0.0)
    bound: list[set[int]] = []
    monkeypatch.setattr(numa.os, "sched_setaffinity", lambda _, cpus: bound.append(cpus))
    taken: list[int] = []
    monkeypatch.setattr(numa, "_taken", taken)
    try:
        assert [numa.bind_to_node(), numa.bind_to_node()] == [1, 1]
        assert bound == [{cpus[0]}, {cpus[-1]}]
        with pytest.raises(RuntimeError, match="2 NUMA nodes of this machine have an engine"):
            numa.bind_to_node()
        os.close(taken.pop(0))  # as when its process ends
        assert numa.bind_to_node() == 1
        assert bound[-1] == {cpus[0]}
    finally:
        for file in taken:
            os.close(file)


def test_nodes_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = os.sched_getaffinity(0)
    monkeypatch.delenv("HEADRACE_NUMA_NODES", raising=False)
    monkeypatch.setattr(numa, "_SYSTEM", tmp_path)
    assert numa.node_cpus() == [own]
    for number, text in ((0, "60000"), (2, "0-4095\n"), (10, "")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(text)
    assert numa.node_cpus() == [own]
    for wrong in ("a", "3-1", "0-99999999", "1-2-3", "-1"):
        monkeypatch.setenv("HEADRACE_NUMA_NODES", wrong)
        with pytest.raises(ValueError, match="CPUs of a NUMA node"):
            numa.node_cpus()


@pytest.mark.parametrize(
    ("body", "beginning"),
    [
        (b'{"prompt": "Once", "model": "m"}', "/p\nOnce"),
        (b'{"messages": [{"a": 1}], "system": "Be"}', '/p\nBe\n[{"a": 1}]'),
        (b'{"prompt": ""}', "/p"),
        (b"[" * 100_000, "/p"),
        (b"\xff", "/p"),
        (b"[1]", "/p"),
    ],
)
def test_how_requests_begin(body: bytes, beginning: str) -> None:
    assert beginning_of("/p", body) == beginning
    assert len(beginning_of("/p", b'{"prompt": "%s"}' % (b"x" * 9999))) == 4096


def test_settings_that_replicas_cannot_keep() -> None:
    for settings in ({"files_dir": "x"}, {"admin_keys": ("key",)}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            serve_app(HeadraceConfig(model="m"), ServerConfig(**settings))
    with pytest.raises(ValueError, match="target_requests"):
        serve_app(HeadraceConfig(model="m"), target_requests=0)
    with pytest.raises(ValueError, match="task_type"):
        serve_app(HeadraceConfig(model="m", task_type="embed"))


class Handle:
    """Ray Serve's handle of one replica."""

    def __init__(self, replica: Replica) -> None:
        self.answer = self
        self.cancelled = False
        self._replica = replica

    def options(self, stream: bool) -> Handle:
        return self

    def remote(self, request: Forwarded) -> Any:
        self._messages = self._replica.answer(request)
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages

    def cancel(self) -> None:
        self.cancelled = True


def front_of(app: Any, server: ServerConfig) -> tuple[Front, Handle]:
    replica = object.__new__(Replica)
    replica._app = app
    handle = Handle(replica)
    return Front(handle, server), handle


async def ask(front: Front, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """What a client gets that sends the messages, and then nothing more."""
    sent: list[dict[str, Any]] = []
    coming = list(messages)

    async def receive() -> dict[str, Any]:
        if coming:
            return coming.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": [], "secret": object()}
    await front._forward(scope, receive, send)
    return sent


def test_requests_and_answers_pass_through() -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        assert "secret" not in scope
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": body, "more_body": number < 2})

    front, _ = front_of(echo, ServerConfig(max_body_bytes=4))
    parts = [
        {"type": "http.request", "body": b"ab", "more_body": True},
        {"type": "http.request", "body": b"cd", "more_body": False},
    ]
    sent = asyncio.run(ask(front, *parts))
    assert b"".join(m.get("body", b"") for m in sent) == b"abcd" * 3
    too_long = [{**parts[0], "body": b"abcde"}]
    assert asyncio.run(ask(front, *too_long))[0]["status"] == 413


def test_a_client_that_leaves_ends_its_request_in_the_replica() -> None:
    ended = False

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        nonlocal ended
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b".", "more_body": True})
        finally:
            ended = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def leave() -> None:
        front, handle = front_of(endless, ServerConfig())
        body = {"type": "http.request", "body": b"", "more_body": False}
        sent = await ask(front, body, {"type": "http.disconnect"})
        assert handle.cancelled
        await handle._messages.aclose()
        assert all(message["type"].startswith("http.response") for message in sent)

    asyncio.run(leave())
    assert ended


def test_an_app_that_fails_is_an_error_of_the_caller() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("broken")

    front, _ = front_of(broken, ServerConfig())
    with pytest.raises(KeyError, match="broken"):
        asyncio.run(ask(front, {"type": "http.request", "body": b"", "more_body": False}))


def test_a_row_with_malformed_tools_ends_no_job() -> None:
    stage = EngineStage.__new__(EngineStage)
    stage._llm, stage._embeds, stage._continues = None, False, True
    messages = [{"role": "user", "content": "Hi"}]
    for tools in ([{"type": "function"}], [1], "f", {"type": "x", "function": {"name": "f"}}):
        row = json.dumps({"messages": messages, "tools": tools})
        answer = json.loads(asyncio.run(stage._answer(row)))
        assert "tools" in answer[ERROR]


def test_replicas_tell_whether_their_model_answers() -> None:
    class Model:
        names = ("m",)
        wrong: str | None = None

        @property
        def pulse(self) -> Any:
            return SimpleNamespace(wrong=lambda seconds: self.wrong)

    model = Model()
    replica = Replica.__new__(Replica)
    replica._registry = SimpleNamespace(models=[model])  # type: ignore[assignment]
    replica._stuck_seconds = 1.0
    asyncio.run(replica.check_health())
    model.wrong = "failed: it takes no requests"
    with pytest.raises(RuntimeError, match="m failed"):
        asyncio.run(replica.check_health())
