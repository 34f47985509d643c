"""The loop of a batch job, with an engine of the tests' own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.batch import job as job_module
from headrace.batch.answers import Answer
from headrace.batch.job import BatchJob, Counts, JobStoppedError
from headrace.batch.progress import Progress
from headrace.batch.results import Results
from headrace.batch.rows import Source

Rows = list[dict[str, Any]]


class Echo:
    """Answers with the prompt, in any order; `status` may say otherwise."""

    def __init__(self, status: Callable[[str], int] = lambda prompt: 200) -> None:
        self.status = status
        self.running = self.most = self.asked = self.bytes = self.most_bytes = 0
        self.random = random.Random(5)

    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        prompt = body["prompt"]
        self.asked += 1
        self.running += 1
        self.bytes += len(prompt)
        self.most = max(self.most, self.running)
        self.most_bytes = max(self.most_bytes, self.bytes)
        for _ in range(self.random.randrange(5)):
            await asyncio.sleep(0)
        self.running -= 1
        self.bytes -= len(prompt)
        return Answer(self.status(prompt), {"text": prompt}, "req", ("user has no effect",))


class Files:
    """A job's files in a folder."""

    def __init__(self, folder: Path, rows: Rows) -> None:
        self.input, self.output, self.errors = (folder / n for n in ("in", "out", "errors"))
        self.write(rows)

    def write(self, rows: Rows) -> None:
        self.input.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, answerer: Any, window: int = 8, **more: Any) -> Counts:
        with Results(self.output, self.errors) as results:
            job = BatchJob(Source(self.input), results, answerer, window, **more)
            return asyncio.run(job.run(Progress(1, shown=False)))

    def answers(self) -> dict[str, Any]:
        return by_id(self.output)

    def failures(self) -> dict[str, Any]:
        return by_id(self.errors)


def by_id(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines), "a row has two results"
    return {line["id"].removeprefix("batch_req_"): line for line in lines}


def prompts(count: int) -> Rows:
    return [{"custom_id": f"c{i}", "prompt": f"p{i}"} for i in range(1, count + 1)]


def test_each_row_gets_its_answer(tmp_path: Path) -> None:
    files, engine = Files(tmp_path, prompts(100)), Echo()
    counts = files.run(engine, window=8)
    assert (counts.completed, counts.failed, counts.skipped) == (100, 0, 0)
    assert engine.most == 8
    answers = files.answers()
    assert len(answers) == 100
    for number, answer in answers.items():
        assert answer["custom_id"] == f"c{number}"
        assert answer["response"]["status_code"] == 200
        assert answer["response"]["body"] == {"text": f"p{number}"}
        assert answer["error"] is None
    assert not files.errors.exists()


def test_a_second_run_asks_for_nothing(tmp_path: Path) -> None:
    files, engine = Files(tmp_path, [*prompts(5), {"prompt": "no id"}, {"bad": 1}]), Echo()
    files.run(engine)
    before = files.output.read_bytes(), files.errors.read_bytes()
    counts = files.run(engine)
    assert (counts.completed, counts.failed, counts.skipped) == (0, 0, 7)
    assert engine.asked == 6
    assert (files.output.read_bytes(), files.errors.read_bytes()) == before


def test_rows_that_fail_are_reported_beside(tmp_path: Path) -> None:
    rows = [*prompts(3), {"custom_id": "c1", "prompt": "again"}, {"custom_id": "d"}]
    files = Files(tmp_path, rows)
    with files.input.open("a") as file:
        file.write("not json\n")
    counts = files.run(Echo(lambda prompt: 400 if prompt == "p2" else 200))
    assert (counts.completed, counts.failed) == (2, 4)
    assert sorted(files.answers()) == ["1", "3"]
    failures = files.failures()
    assert failures["2"]["response"]["status_code"] == 400
    assert failures["4"]["error"]["code"] == "duplicate_custom_id"
    assert failures["4"]["custom_id"] == "c1"
    assert failures["5"]["error"]["code"] == "missing_required_parameter"
    assert failures["6"]["error"]["code"] == "invalid_row"
    assert failures["6"]["custom_id"] is None


@pytest.mark.parametrize("asked", range(0, 30, 3))
def test_a_job_goes_on_where_it_was(asked: int, tmp_path: Path) -> None:
    rows = [*prompts(20), {"custom_id": "c7", "prompt": "again"}, {"x": 1}, *prompts(2)[:0]]
    files = Files(tmp_path, rows)

    class Dies(Echo):
        async def answer(self, url: str, body: dict[str, Any]) -> Answer:
            if self.asked >= asked:
                raise MemoryError("gone")
            return await super().answer(url, body)

    if asked < 20:
        with pytest.raises(MemoryError):
            files.run(Dies(), window=3)
    before = len(files.answers()) + len(files.failures())
    counts = files.run(Echo(), window=3)
    assert counts.skipped == before
    assert {n: a["response"]["body"]["text"] for n, a in files.answers().items()} == {
        str(n): f"p{n}" for n in range(1, 21)
    }
    assert sorted(files.failures()) == ["21", "22"]


def test_an_engine_that_only_fails_ends_the_job_and_costs_no_row(tmp_path: Path) -> None:
    files = Files(tmp_path, prompts(60))
    with pytest.raises(JobStoppedError, match="failed 16 times in a row"):
        files.run(Echo(lambda prompt: 500 if int(prompt[1:]) > 20 else 200), window=1)
    assert len(files.answers()) == 20
    assert files.failures() == {}
    assert files.run(Echo()).completed == 40


def test_single_failures_of_the_engine_are_kept(tmp_path: Path) -> None:
    files = Files(tmp_path, prompts(60))
    counts = files.run(Echo(lambda prompt: 500 if int(prompt[1:]) % 4 else 200), window=1)
    assert (counts.completed, counts.failed) == (15, 45)
    assert len(files.failures()) == 45
    assert {f["response"]["status_code"] for f in files.failures().values()} == {500}


def test_failures_at_the_very_end_are_kept(tmp_path: Path) -> None:
    files = Files(tmp_path, prompts(3))
    assert files.run(Echo(lambda prompt: 500)).failed == 3
    assert len(files.failures()) == 3


def test_rows_may_be_added_but_not_changed(tmp_path: Path) -> None:
    files = Files(tmp_path, prompts(5))
    files.run(Echo())
    files.write(prompts(8))
    assert files.run(Echo()).completed == 3
    files.write([{"custom_id": "other", "prompt": "x"}, *prompts(8)[1:]])
    with pytest.raises(ValueError, match="row 1 is not the one"):
        files.run(Echo())
    files.write(prompts(4))
    with pytest.raises(ValueError, match="have results of 4 rows that are not in"):
        files.run(Echo())


def test_what_is_in_flight_is_bounded_in_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "MOST_BYTES", 3000)
    files, engine = Files(tmp_path, [{"prompt": "a" * 1000} for _ in range(40)]), Echo()
    files.run(engine, window=50)
    assert 1000 < engine.most_bytes <= 3000
    assert len(files.answers()) == 40


def test_a_field_without_effect_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Files(tmp_path, prompts(10)).run(Echo())
    assert [record.getMessage() for record in caplog.records] == ["user has no effect"]


def test_results_that_cannot_be_written_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path, prompts(10))
    wrong = OSError(28, "No space left on device")

    def fail(*_: object) -> None:
        raise wrong

    monkeypatch.setattr(Results, "add_answer", fail)
    with pytest.raises(OSError, match="No space left"):
        files.run(Echo())


MEMORY = """
import asyncio, os, sys
from pathlib import Path
from headrace.batch.answers import Answer
from headrace.batch.job import BatchJob
from headrace.batch.progress import Progress
from headrace.batch.results import Results
from headrace.batch.rows import Source

page = os.sysconf("SC_PAGE_SIZE")
resident = {}

class Engine:
    asked = 0
    async def answer(self, url, body):
        self.asked += 1
        if self.asked % 10_000 == 0:
            resident[self.asked] = int(open("/proc/self/statm").read().split()[1]) * page
        await asyncio.sleep(0)
        return Answer(200, {"text": body["prompt"]}, "req")

folder = Path(sys.argv[1])
with Results(folder / "out", folder / "errors") as results:
    job = BatchJob(Source(folder / "in"), results, Engine(), 64)
    counts = asyncio.run(job.run(Progress(1, shown=False)))
assert counts.completed == 100_000
print(resident[20_000], resident[100_000])
"""


def test_memory_is_flat_over_a_hundred_thousand_rows(tmp_path: Path) -> None:
    with (tmp_path / "in").open("w") as file:
        for number in range(100_000):
            file.write(
                json.dumps({"custom_id": f"row-{number}", "prompt": f"{number:0200}"}) + "\n"
            )
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    early, late = map(int, done.stdout.split())
    assert late - early < 4 << 20, f"{early >> 10} KiB after 20,000 rows, {late >> 10} at the end"
    with (tmp_path / "out").open() as file:
        assert sum(1 for _ in file) == 100_000
