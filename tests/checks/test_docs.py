"""Every Python and shell snippet of README.md and docs/ runs as printed.

They run in an empty folder where the published names of models are links to the shipped one, and
script.py is a script written for fastdeploy. A fence marked ```text or ```cpp is not run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/tiny_model/checkpoint"
NAMES = ["ERNIE-4.5-0.3B-PT"]
SCRIPT = """
from fastdeploy import LLM, SamplingParams
with LLM(model="ERNIE-4.5-0.3B-PT") as llm:
    print(llm.generate("User: ", SamplingParams(max_tokens=4), use_tqdm=False)[0].outputs.text)
"""
# CI itself runs these, or they would install a second time.
RUN_ELSEWHERE = re.compile(
    r"^(examples/quickstart|tests/run|pip install|pre-commit|git|cmake|ninja)"
)
FENCE = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str, str, str]]:
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, (kind, code) in enumerate(FENCE.findall(path.read_text()), 1):
            if kind == "python":
                found.append((f"{path.name}-{number}", kind, code))
                continue
            for line in code.replace("\\\n", " ").splitlines():
                command = re.sub(r"\s#.*", "", line).strip()
                if command and not RUN_ELSEWHERE.match(command):
                    found.append((f"{path.name}-{number}: {command}", kind, command))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).symlink_to(MODEL)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "code"), [s[1:] for s in snippets()], ids=[s[0] for s in snippets()]
)
def test_snippet_runs(kind: str, code: str, folder: Path) -> None:
    command = [sys.executable, "-c", code] if kind == "python" else ["bash", "-ec", code]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        command,
        cwd=folder,
        input="What is 2 + 2?\n/exit\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert result.returncode == 0, result.stderr[-3000:]


def test_there_are_snippets() -> None:
    kinds = [kind for _, kind, _ in snippets()]
    assert kinds.count("python") >= 2
    assert kinds.count("bash") >= 4
