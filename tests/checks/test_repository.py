"""The repository stays small and free of leftovers."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = {".h", ".cc", ".inc", ".cu", ".cuh", ".py"}
MAX_LINES = 550


def tracked() -> list[Path]:
    out = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    return [ROOT / name for name in out.split("\0") if name and (ROOT / name).is_file()]


def test_code_files_are_short() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for p in tracked()
        if p.suffix in CODE and (n := len(p.read_text().splitlines())) > MAX_LINES
    }
    assert not long, f"split these: {long}"


def test_no_leftovers_or_machine_paths() -> None:
    words = re.compile(
        r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b|/ro" + r"ot/|/ho" + r"me/\w"
        r"|^(<{7}|>{7}|\|{7}) |^={7}$"  # of a merge
    )
    found = []
    for path in tracked():
        if path.suffix not in CODE | {".md", ".toml", ".txt", ".cmake", ".sh", ""}:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if words.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


def test_nothing_that_a_build_makes() -> None:
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    assert not ignored, f"git ignores these, but has them:\n{ignored}"
    programs = []
    for path in tracked():
        with path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                programs.append(str(path.relative_to(ROOT)))
    assert not programs


@pytest.mark.parametrize(("name", "most"), [("tiny_model", 8 << 20), ("tiny_vision", 10_000_000)])
def test_the_models_of_the_examples_are_small(name: str, most: int) -> None:
    folder = ROOT / "examples" / name / "checkpoint"
    assert sum(p.stat().st_size for p in folder.iterdir()) <= most


def test_dependencies_are_listed() -> None:
    """Each dependency in pyproject.toml has its row in third_party/README.md."""
    text = (ROOT / "pyproject.toml").read_text()
    rows = (ROOT / "third_party/README.md").read_text().lower()
    names = set(re.findall(r'^\s*"([A-Za-z0-9_-]+)(?:[><=]=[^"]*)?",?$', text, re.MULTILINE))
    names |= set(re.findall(r'"([A-Za-z0-9-]+)>=', text))
    assert {"jinja2", "pybind11", "tokenizers"} <= names
    missing = sorted(n for n in names if n.lower() not in rows)
    assert not missing, f"third_party/README.md says nothing of {missing}"
