"""Finds flaky tests: whatever depends on threads, time or load, many times beside busy neighbours.

    python tests/repeat.py --times 200 --neighbours 6 [--cores 2] [--build build/release] [PATTERN]

C++: the programs that ctest labels `threads`. Python: the tests marked `threads` (tests/python/
conftest.py), file by file. PATTERN, a regular expression, picks some by name. Prints a table and
what the first failure of each said; exits with 1 when anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIME_LIMIT = 1800  # seconds, for one run: as ctest's
TAIL = 4000  # characters of a failure that are printed
NO_TESTS = "Running 0 tests"  # what GoogleTest says of a filter that no test passes
FAILED = re.compile(r"^(?:\[  FAILED  \]|FAILED) (\S+)", re.MULTILINE)
BUSY = "while True: pass"


@dataclass
class Subject:
    """A program or a file of tests, and what came of its runs."""

    name: str
    command: list[str]
    folder: Path
    seconds: list[float] = field(default_factory=list)
    failures: int = 0
    failed: set[str] = field(default_factory=set)  # names of tests
    first_failure: str = ""

    def run(self) -> None:
        began = time.monotonic()
        try:
            done = subprocess.run(
                self.command,
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIME_LIMIT,
            )
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            code, output = -1, f"did not end within {TIME_LIMIT} s"
        self.seconds.append(time.monotonic() - began)
        empty = NO_TESTS in output
        if code != 0 or empty:
            self.failures += 1
            what = "no test ran" if empty else f"exit status {code}"
            self.failed |= set(FAILED.findall(output)) or {what}
            self.first_failure = self.first_failure or output[-TAIL:]


def programs(build: Path) -> list[Subject]:
    """The C++ tests with the label."""
    listed = subprocess.run(
        ["ctest", "--test-dir", str(build), "-L", "^threads$", "--show-only=json-v1"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        Subject(test["name"], test["command"], build)
        for test in json.loads(listed.stdout)["tests"]
        if "command" in test
    ]


def python_files(build: Path) -> list[Subject]:
    """The files that have tests with the mark."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "threads"]
    os.environ["HEADRACE_BUILD_DIR"] = str(build)
    listed = subprocess.run(
        [*pytest, "--collect-only"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    names = sorted({line.split("::")[0] for line in listed.stdout.splitlines() if "::" in line})
    return [Subject(name, [*pytest, name], ROOT) for name in names]


def table(subjects: list[Subject]) -> str:
    rows = [f"{'test':44} {'runs':>5} {'failed':>6} {'longest':>9}"]
    for subject in subjects:
        longest = f"{max(subject.seconds):.1f} s" if subject.seconds else ""
        rows.append(f"{subject.name:44} {len(subject.seconds):5} {subject.failures:6} {longest:>9}")
        rows += [f"    {name}" for name in sorted(subject.failed)]
    return "\n".join(rows)


def repeat(subjects: list[Subject], times: int, neighbours: int) -> None:
    """Round by round, so that a run that is cut short has tried everything."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(neighbours)]
    try:
        for number in range(1, times + 1):
            for subject in subjects:
                subject.run()
            failures = sum(subject.failures for subject in subjects)
            print(f"round {number} of {times}: {failures} failed so far", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", help="which, by name (default: all)")
    parser.add_argument("--times", type=int, default=200, help="runs of each (default: 200)")
    parser.add_argument("--neighbours", type=int, default=6, help="busy processes (default: 6)")
    parser.add_argument("--cores", type=int, default=2, help="for all of it (default: 2)")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="build folder")
    args = parser.parse_args()

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    build = args.build.resolve()
    subjects = [
        subject
        for subject in [*programs(build), *python_files(build)]
        if re.search(args.pattern, subject.name)
    ]
    if not subjects:
        parser.error(f"no test is called {args.pattern!r}")
    repeat(subjects, args.times, args.neighbours)
    for subject in subjects:
        if subject.first_failure:
            print(f"\n--- {subject.name}, the first time it failed:\n{subject.first_failure}")
    print()
    print(table(subjects))
    return 1 if any(subject.failures for subject in subjects) else 0


if __name__ == "__main__":
    sys.exit(main())
