"""Limited processes that fail, or that earlier requests have filled."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from headrace.errors import EngineError
from headrace.limited import processes as limited
from headrace.limited.processes import LimitedProcesses, Work

MIB = 1 << 20


def made(**more: Any) -> LimitedProcesses:
    return LimitedProcesses(
        Work(
            handler="greedy_handler",
            packages=(),
            noun="request",
            does="keeps bytes",
            remedy="ask for fewer",
            error=ValueError,
            failure=EngineError,
            **more,
        )
    )


def test_what_earlier_requests_left_takes_nothing_from_later_ones() -> None:
    pool = made(memory_bytes=64 * MIB)
    try:
        seen = [int(pool.ask(str(40 * MIB).encode())) for _ in range(3)]
        assert seen[0] == seen[1] != seen[2], "a process that is full ends, and another is started"
        with pytest.raises(ValueError, match="more than the 64 MiB"):
            pool.ask(str(80 * MIB).encode())
    finally:
        pool.close()


def test_a_process_that_cannot_start_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn goes to another that waits."""
    pool = made(most=1)

    def fails(*_: Any) -> Any:
        raise OSError("no memory")

    monkeypatch.setattr(limited, "start", fails)
    pool._busy.add(holder := object())  # type: ignore[arg-type]
    errors: list[str] = []

    def ask() -> None:
        try:
            pool.ask(b"1")
        except EngineError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(pool._changed._waiters) < 3:  # type: ignore[attr-defined]
        time.sleep(0.001)
    with pool._changed:
        pool._busy.discard(holder)  # type: ignore[arg-type]
        pool._changed.notify()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 3
    assert "can't be started: no memory; ask for fewer" in errors[0]
