"""The queue of headrace.allspark against the worst moments to ask: status, tokens and end."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.allspark import GenerateRequestStatus as Status
from headrace.allspark.core import engine_api
from headrace.allspark.serving import results
from headrace.allspark.serving.results import ResultQueue

RUNNING = (Status.Init, Status.Generating)


class FakeResults:
    """The engine's side of a queue, moved by hand."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.tokens: list[int] = []
        self.generated = 0
        self.reason = engine_api.FinishReason.NONE
        self.end_taken = False

    def push(self, *tokens: int, end: Any = None) -> None:
        with self.changed:
            self.tokens += tokens
            self.generated += len(tokens)
            self.reason = self.reason if end is None else end
            self.changed.notify_all()

    def _take(self) -> Any:
        taken, self.tokens = self.tokens, []
        finished = self.reason != engine_api.FinishReason.NONE
        self.end_taken = finished
        return SimpleNamespace(
            token_ids=taken,
            logprobs=[],
            finished=finished,
            finish_reason=self.reason,
            error_code="internal",
            error_message="broken",
        )

    def _ready(self) -> bool:
        return bool(self.tokens) or self.reason != engine_api.FinishReason.NONE

    def get(self, timeout: float | None = None) -> Any:
        with self.changed:
            return self._take() if self.changed.wait_for(self._ready, timeout) else None

    def get_nowait(self) -> Any:
        with self.changed:
            return self._take() if self._ready() and not self.end_taken else None

    def status(self) -> Any:
        if self.reason != engine_api.FinishReason.NONE:
            return engine_api.RequestStatus.FINISHED
        kinds = engine_api.RequestStatus
        return kinds.GENERATING if self.generated else kinds.WAITING

    def generated_length(self) -> int:
        return self.generated

    def stats(self) -> Any:
        return SimpleNamespace(cached_tokens=128, host_cached_tokens=64)


def pair(stopped: bool = False) -> tuple[FakeResults, ResultQueue]:
    fake = FakeResults()
    queue = ResultQueue(fake)  # type: ignore[arg-type]
    if stopped:
        queue.mark_stopped()
    return fake, queue


@pytest.mark.parametrize(
    ("device", "split"), [("cpu", (0, 128)), ("cpu_numa", (0, 128)), ("cuda:1", (64, 64))]
)
def test_where_the_prefix_was(device: str, split: tuple[int, int]) -> None:
    fake = FakeResults()
    queue = ResultQueue(fake, device)  # type: ignore[arg-type]
    fake.push(1)
    element = queue.Get()
    assert element.prefix_cache_len == 128
    assert (element.prefix_len_gpu, element.prefix_len_cpu) == split


def test_states_in_order() -> None:
    fake, queue = pair()
    assert queue.GenerateStatus() == Status.Init
    fake.push(1)
    assert queue.GenerateStatus() == Status.Generating  # ContextFinished is never shown
    fake.push(2)
    assert queue.GenerateStatus() == Status.Generating
    assert queue.Get().ids_from_generate == [1, 2]
    assert queue.GenerateStatus() == Status.Generating
    fake.push(3, end=engine_api.FinishReason.STOP)
    assert queue.GenerateStatus() == Status.Generating  # until 3 has been taken
    assert queue.Get().ids_from_generate == [3]
    assert queue.GenerateStatus() == Status.GenerateFinished


def test_the_end_of_a_request_without_tokens_shows_at_once() -> None:
    fake, queue = pair(stopped=True)
    fake.push(end=engine_api.FinishReason.ABORT)
    assert queue.GenerateStatus() == Status.GenerateFinished


@pytest.mark.parametrize(
    ("reason", "stopped", "status"),
    [
        ("STOP", False, Status.GenerateFinished),
        ("LENGTH", False, Status.GenerateFinished),
        ("ABORT", True, Status.GenerateFinished),
        ("ABORT", False, Status.GenerateInterrupted),
        ("INTERRUPTED", False, Status.GenerateInterrupted),
        ("ERROR", False, Status.InternalError),
    ],
)
def test_ends(reason: str, stopped: bool, status: Status, caplog: pytest.LogCaptureFixture) -> None:
    fake, queue = pair(stopped)
    fake.push(7, end=engine_api.FinishReason[reason])
    assert queue.GenerateStatus() in RUNNING
    assert queue.Get().ids_from_generate == [7]
    assert queue.GenerateStatus() == status
    assert queue.Get().ids_from_generate == []
    assert ("broken" in caplog.text) == (reason == "ERROR")


def test_after_sync_the_end_shows_and_the_tokens_stay() -> None:
    fake, queue = pair()
    fake.push(1, 2, end=engine_api.FinishReason.STOP)
    queue.mark_synced()
    assert queue.GenerateStatus() == Status.GenerateFinished
    assert queue.GetNoWait().ids_from_generate == [1, 2]
    assert queue.GetNoWait().ids_from_generate == []


def test_who_only_watches_sees_the_end_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(results.time, "monotonic", lambda: now[0])
    fake, queue = pair()
    fake.push(1, 2, end=engine_api.FinishReason.LENGTH)
    assert queue.GenerateStatus() == Status.Generating
    now[0] += 0.05
    assert queue.GenerateStatus() == Status.Generating
    now[0] += 0.06
    assert queue.GenerateStatus() == Status.GenerateFinished
    assert queue.GetWithTimeout(1).ids_from_generate == [1, 2]


def test_watching_never_hides_tokens_from_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(results.time, "monotonic", lambda: now[0])
    fake, queue = pair()
    fake.push(1)
    queue.Get()
    fake.push(2, end=engine_api.FinishReason.LENGTH)
    for _ in range(3):  # somebody reads: the end waits for them, however long
        now[0] += 100
        assert queue.GenerateStatus() == Status.Generating
    assert queue.Get().ids_from_generate == [2]


def test_timeouts() -> None:
    fake, queue = pair()
    assert queue.GetWithTimeout(1) is None
    assert queue.GetNoWait().ids_from_generate == []
    threading.Timer(0.05, lambda: fake.push(5)).start()
    for wait_for_ever in (0, -1):
        element = queue.GetWithTimeout(wait_for_ever)
        assert element is not None
        if wait_for_ever == 0:
            assert element.ids_from_generate == [5]
            fake.push(6)
        else:
            assert element.ids_from_generate == [6]


def test_the_documented_loop_loses_nothing() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        fake, queue = pair()
        total = chance.randrange(1, 6)
        gaps = [chance.choice([0, 0, 1e-5, 1e-4]) for _ in range(total)]

        def produce(fake: FakeResults = fake, gaps: list[float] = gaps) -> None:
            for number, gap in enumerate(gaps):
                last = number == len(gaps) - 1
                threading.Event().wait(gap) if gap else None
                fake.push(number, end=engine_api.FinishReason.STOP if last else None)

        producer = threading.Thread(target=produce)
        producer.start()
        generated: list[int] = []
        status = queue.GenerateStatus()
        while status in RUNNING:
            elements = queue.Get()
            if elements is not None:
                generated += elements.ids_from_generate
            status = queue.GenerateStatus()
            if status == Status.GenerateFinished:
                break
        producer.join()
        assert generated == list(range(total))
