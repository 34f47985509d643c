"""The process that renders chat templates with jinja2: what it gives, and what becomes of it."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile_templates import ATTACKS
from small_process import in_a_small_process

from headrace.errors import TemplateError
from headrace.limited import start
from headrace.text.templates import process as template_process
from headrace.text.templates.process import render, variables_read


def limit(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    pool = template_process._pool
    monkeypatch.setattr(pool, "work", replace(pool.work, **limits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("power", "processor time"),
        ("bytes times", "MiB of memory allowed"),
        ("wide output", "16777216 characters"),
    ],
)
def test_attacks_end_in_errors(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, cpu_seconds=0.3)  # of what would take for ever
    with pytest.raises(TemplateError, match=message):
        render(ATTACKS[name], {"messages": []})


def test_the_variables_that_a_template_reads() -> None:
    template = "{% set b = a %}{{ b }}{{ [c] | pprint }}"
    assert variables_read(template) == {"a", "c"}


class TestVariables:
    def test_plain_data_arrives_as_it_is(self) -> None:
        data = {"t": (1, 2), "s": {3}, "b": b"x", "big": 10**50, "date": datetime.date(2020, 1, 2)}
        template = "{{ t }}{{ s }}{{ b }}{{ big }}{{ date.year }}"
        assert render(template, data) == f"(1, 2){{3}}b'x'{10**50}2020"

    def test_lone_surrogates(self) -> None:
        assert render("{{ x }}", {"x": "a\ud800"}) == "a\ud800"

    def test_what_cannot_be_sent_is_named(self) -> None:
        with pytest.raises(TemplateError, match=r"'now' .* is not plain data"):
            render("{{ now() }}", {"fine": 1, "now": lambda: 1})

    def test_they_have_a_largest_size(self) -> None:
        with pytest.raises(TemplateError, match="more than the 16777216 bytes allowed"):
            render("x", {"messages": ["a" * (1 << 20), "b" * (1 << 24)]})


def workers() -> list[Any]:
    return template_process._pool._idle


@pytest.fixture
def worker() -> Any:
    assert render("{{ 1 }}", {}) == "1"
    return workers()[0]


class TestProcess:
    def test_it_is_used_again(self, worker: Any) -> None:
        for _ in range(5):
            render("{{ 2 }}", {})
        with pytest.raises(TemplateError):
            render("{{ a.b.c }}", {})
        assert workers() == [worker]

    def test_one_that_died_is_replaced(self, worker: Any) -> None:
        worker._process.kill()
        assert render("{{ 1 }}", {}) == "1"
        assert workers() != [worker]

    def test_one_that_is_killed_at_work_is_replaced_once(self, worker: Any) -> None:
        long = "{% for i in range(10 ** 9) %}{% endfor %}"
        pid = worker._process.pid
        killer = threading.Timer(0.1, os.kill, [pid, signal.SIGKILL])
        killer.start()
        with pytest.raises(TemplateError, match=r"processor time|range"):
            render(long, {})
        killer.join()
        assert render("{{ 1 }}", {}) == "1"

    def test_one_that_hangs_is_replaced(self, worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        limit(monkeypatch, wall_seconds=0.2)
        worker._work = template_process._pool.work
        os.kill(worker._process.pid, signal.SIGSTOP)
        with pytest.raises(TemplateError, match=r"took more than 0\.2 s"):
            render("{{ 1 }}", {})
        monkeypatch.undo()
        assert render("{{ 1 }}", {}) == "1"
        assert worker._process.returncode == -signal.SIGKILL  # and waited for

    def test_ctrl_c_ends_the_call_and_mixes_up_nothing(self, worker: Any) -> None:
        endless = ATTACKS["endless loops"]
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            render(endless, {})
        timer.join()
        assert render("{{ 'mine' }}", {}) == "mine"

    def test_threads_have_one_each_and_leave_one(self) -> None:
        slow = "{% for i in range(99999) %}{% endfor %}{{ me }}"
        answers: list[str] = []

        def work(number: int) -> None:
            answers.append(render(slow, {"me": number}))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(int, answers)) == list(range(10))
        assert len(workers()) == 1
        assert not template_process._pool._busy

    def test_a_forked_child_starts_its_own(self, worker: Any) -> None:
        child = os.fork()
        if child == 0:
            try:
                own = render("{{ 'child' }}", {}) == "child"
                template_process._pool.close()
                os._exit(0 if own else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert render("{{ 'parent' }}", {}) == "parent"
        assert workers() == [worker]

    def test_it_ends_with_the_program_that_started_it(self) -> None:
        code = """
from headrace.text.templates import process as template_process
template_process.render("x", {})
print(template_process._pool._idle[0]._process.pid, end="")
"""
        pid = int(in_a_small_process(code))
        assert not Path(f"/proc/{pid}").exists()
        # Also where nothing can be said at the end.
        killed = in_a_small_process(code + "import os, sys\nsys.stdout.flush()\nos._exit(0)")
        deadline = time.monotonic() + 30
        while Path(f"/proc/{killed}").exists() and "Z" not in state_of(killed):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_no_file_descriptor_is_left(self) -> None:
        def count() -> int:
            return len(os.listdir("/proc/self/fd"))

        render("x", {})
        before = count()
        for _ in range(3):
            with pytest.raises(TemplateError, match="MiB of memory allowed"):
                render(ATTACKS["str times"], {})
        render("x", {})
        assert count() == before

    def test_where_python_is_embedded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with_host = "/usr/bin/env"  # stands for a program that has Python in it
        monkeypatch.setattr(sys, "executable", with_host)
        found = start.interpreter()
        assert found != with_host
        version = [found, "-c", "import sys; print(sys.version_info[:2])"]
        assert subprocess.check_output(version, text=True).strip() == str(sys.version_info[:2])

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda: "/bin/false/python3", "can't be started"),
            (lambda: "/bin/false", "can't start"),
        ],
    )
    def test_it_cannot_start(
        self, broken: Callable[[], str], message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        template_process._pool.close()
        monkeypatch.setattr(start, "interpreter", broken)
        with pytest.raises(TemplateError, match=message):
            render("x", {})
        monkeypatch.undo()
        assert render("{{ 1 }}", {}) == "1"


def state_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return "Z"
