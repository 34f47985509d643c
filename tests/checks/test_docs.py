"""Every Python and shell snippet of README.md and docs/ runs as printed.

They run in an empty folder, but for what the reader brings: script.py, written for fastdeploy,
my-adapter, a PEFT folder, and examples/tiny_vision of the sources. A fence marked ```text or
```cpp is not run."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/soak"))

from adapters import make_adapter  # noqa: E402

CONFIG = ROOT / "examples/tiny_model/checkpoint/config.json"
SCRIPT = """
from fastdeploy import LLM, SamplingParams
from headrace import shipped_model
with LLM(model=shipped_model()) as llm:
    print(llm.generate("User: ", SamplingParams(max_tokens=4), use_tqdm=False)[0].outputs.text)
"""
# CI itself runs these, or they would install a second time.
RUN_ELSEWHERE = re.compile(
    r"^(examples/quickstart|tests/run|pip install|pre-commit|git|cmake|ninja)"
)
TIMEOUT = 300
INPUT = "What is 2 + 2?\n/exit\n"
FENCE = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets() -> list[tuple[str, str, str]]:
    """Name, kind and text of each."""
    found = []
    for path in PAGES:
        for number, (kind, code) in enumerate(FENCE.findall(path.read_text()), 1):
            if kind == "bash":
                lines = code.replace("\\\n", " ").splitlines()
                code = "\n".join(line for line in lines if not RUN_ELSEWHERE.match(line))
            if code.strip():
                found.append((f"{path.name}-{number}", kind, code))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    make_adapter(tmp_path / "my-adapter", json.loads(CONFIG.read_text()), rank=4, seed=1)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/tiny_vision").symlink_to(ROOT / "examples/tiny_vision")
    return tmp_path


class SnippetServer:
    """snippet_server.py: one process that imports headrace for all snippets, each of which has a
    fork of it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("snippet_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str, folder: Path) -> tuple[int, str]:
        """Exit status and stderr."""
        task = {"code": code, "folder": str(folder), "timeout": TIMEOUT}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        (folder / "stdin").write_text(INPUT)
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return status, (folder / "stderr").read_text()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[SnippetServer]:
    server = SnippetServer()
    yield server
    server.close()


@pytest.mark.parametrize(
    ("kind", "code"), [s[1:] for s in snippets()], ids=[s[0] for s in snippets()]
)
def test_snippet_runs(kind: str, code: str, folder: Path, server: SnippetServer) -> None:
    if "import ray" in code:
        pytest.importorskip("ray")  # the stage `ray` of tests/run has it
    if kind == "python":
        status, errors = server.run(code, folder)
    else:
        status, errors = run_shell(code, folder)
    assert status == 0, errors[-3000:]


def run_shell(code: str, folder: Path) -> tuple[int, str]:
    """Exit status and stderr."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-ec", code],
        cwd=folder,
        input=INPUT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, "PATH": path},
    )
    return result.returncode, result.stderr


def test_snippets_have_nothing_of_each_other(server: SnippetServer, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    code = """
import builtins, os, sys, headrace
assert not hasattr(builtins, "left")
assert "left" not in (*globals(), *os.environ, *vars(headrace)) and sys.argv == ["-c"]
builtins.left = left = headrace.left = 1
os.environ["left"] = "1"
assert sys.stdin.readline() == "What is 2 + 2?\\n"
class Point: pass
import pickle
assert isinstance(pickle.loads(pickle.dumps(Point())), Point)
"""
    assert [server.run(code, folder) for folder in folders] == [(0, "")] * 2
    assert server.run("raise SystemExit(7)", folders[0])[0] == 7
    status, errors = server.run("import atexit\natexit.register(print, 1 / 0)", folders[1])
    assert status == 1
    assert "ZeroDivisionError" in errors


def test_there_are_snippets() -> None:
    kinds = [kind for _, kind, _ in snippets()]
    assert kinds.count("python") >= 12
    assert kinds.count("bash") >= 4


def test_code_stands_in_fences() -> None:
    """Where it would not be run."""
    for path in PAGES:
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert not re.search(r"^    (from|import|llm|with|engine)\b", text, re.MULTILINE), path.name


@pytest.mark.parametrize("name", ["brook", "tarn"])
def test_the_example_of_a_family_is_the_one_that_is_compiled(name: str) -> None:
    source = (ROOT / f"tests/cpp/model/example_family/{name}.cc").read_text()
    assert f"```cpp\n{source}```" in (ROOT / "docs/developing.md").read_text()
    assert len(source.splitlines()) < 60
