"""tests/run, its stages and docs/developing.md agree; tests/repeat.py finds what is flaky."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/checks"))
sys.path.insert(0, str(ROOT / "packaging"))

import repeat  # noqa: E402
import requirements  # noqa: E402
import sysroot  # noqa: E402

RUN = (ROOT / "tests/run").read_text()
# A longer stage -> the one whose work it includes.
LONGER = {
    "clang_all": "clang",
    "cpp_all": "cpp",
    "cuda_all": "cuda",
    "asan_all": "asan",
    "fuzz_long": "fuzz",
    "soak_long": "soak",
}


def listed(position: int) -> list[str]:
    """The stages of `tests/run` (0) and of `tests/run all` (1)."""
    found: str = re.findall(r"stages=\(([a-z][a-z_ ]*)\)", RUN)[position]
    return found.split()


def documented(column: int) -> set[str]:
    """The stages with a "yes" in that column of docs/developing.md's table."""
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]+\|([^|]*)\|([^|]*)\|$",
        (ROOT / "docs/developing.md").read_text(),
        re.MULTILINE,
    )
    return {row[0] for row in rows if row[1 + column].strip() == "yes"}


@pytest.mark.parametrize("position", [0, 1])
def test_the_page_has_every_stage(position: int) -> None:
    stages = listed(position)
    assert "cpp" in {LONGER.get(stage, stage) for stage in stages}
    assert documented(position) == set(stages)
    assert all(f"run_{stage}() {{" in RUN for stage in stages)


def test_packages_are_those_of_pyproject() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert requirements.group("dependencies") == project["dependencies"]
    for name, packages in project["optional-dependencies"].items():
        assert requirements.group(name) == packages


def test_every_cpp_test_belongs_to_a_program() -> None:
    lists = [path.read_text() for path in (ROOT / "tests").rglob("CMakeLists.txt")]
    sources = sorted((ROOT / "tests").rglob("*_test.cc"))
    assert len(sources) > 100
    # tests/cuda lists its kernels' tests without the ending.
    names = {word.rpartition("/")[2] for text in lists for word in re.findall(r"[\w/.]+", text)}
    forgotten = [s.name for s in sources if not {s.name, s.name[: -len("_test.cc")]} & names]
    assert not forgotten


def test_all_leaves_nothing_out() -> None:
    assert set(listed(0)) <= {LONGER.get(stage, stage) for stage in listed(1)}


def test_a_flaky_program_is_found(tmp_path: Path) -> None:
    flaky = "test -e seen && { echo 'FAILED tests/a.py::test_b - boom'; exit 1; }; touch seen"
    subjects = [
        repeat.Subject("steady", ["true"], tmp_path),
        repeat.Subject("flaky", ["sh", "-c", flaky], tmp_path),
    ]
    repeat.repeat(subjects, times=3, neighbours=1)
    assert [subject.failures for subject in subjects] == [0, 2]
    assert "boom" in subjects[1].first_failure
    text = repeat.table(subjects)
    assert re.search(r"^steady +3 +0 ", text, re.MULTILINE)
    assert re.search(r"^flaky +3 +2 .*\n +tests/a.py::test_b$", text, re.MULTILINE)


def test_a_program_that_dies_is_a_failure(tmp_path: Path) -> None:
    subject = repeat.Subject("dies", ["sh", "-c", "kill -9 $$"], tmp_path)
    subject.run()
    assert subject.failures == 1
    assert subject.failed == {"exit status -9"}


def test_a_program_without_tests_is_a_failure(tmp_path: Path) -> None:
    said = "echo '[==========] Running 0 tests from 0 test suites.'"
    subject = repeat.Subject("empty", ["sh", "-c", said], tmp_path)
    subject.run()
    assert subject.failures == 1
    assert subject.failed == {"no test ran"}


def test_the_link_stub_has_no_newer_symbol() -> None:
    """packaging/sysroot.py: what GCC 8's library has, and nothing of what came later."""
    symbols = sysroot.old_symbols(sysroot.compiler_file("libstdc++.so.6"))
    assert symbols["_ZSt9terminatev"][0] == "GLIBCXX_3.4"
    # A class that came with GCC 9, and one whose old symbol stands beside a newer one.
    assert not any("filesystem" in name for name in symbols)
    wait = "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
    assert symbols[wait][0] == "GLIBCXX_3.4.11"
