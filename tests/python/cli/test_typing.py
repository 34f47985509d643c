"""What type checkers and editors see: LLM's keywords, and the code in the docs."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
import typing
from dataclasses import fields
from pathlib import Path

import pytest
from conftest import ROOT

from headrace import LLM, EngineArgs
from headrace.options.other_engine_args import OtherEngineArgs

sys.path.insert(0, str(ROOT / "tests" / "checks"))

from test_docs import snippets

OWN = {"model", "revision", "tokenizer", "enable_logprob", "chat_template"}  # by position, too
SIGNATURE = inspect.signature(LLM.__init__).parameters


def test_every_engine_argument_is_a_keyword_of_llm() -> None:
    known = {item.name: item for item in fields(EngineArgs)}
    keywords = set(SIGNATURE) - {"self", "kwargs"}
    listed = keywords | set(OtherEngineArgs.__annotations__)
    missing = [f"    {name}: {known[name].type}" for name in known if name not in listed]
    assert not missing, "add to headrace/options/other_engine_args.py:\n" + "\n".join(missing)
    assert listed == set(known)
    for name in keywords - OWN:
        assert SIGNATURE[name].default == known[name].default, name
        assert SIGNATURE[name].annotation == known[name].type, name


def test_the_types_of_the_others_are_those_of_the_arguments() -> None:
    types = {item.name: item.type for item in fields(EngineArgs)}
    for name, hint in OtherEngineArgs.__annotations__.items():
        text = hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else hint
        assert text == types[name], name


def strict(cache: Path, *files: Path) -> str:
    """What mypy --strict says. It knows of headrace what `tests/run lint` has left in its cache."""
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", cache)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", cache, *files],
        cwd=ROOT,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout + done.stderr


WRONG = """
from headrace import LLM, RequestOutput

with LLM("m", max_model_length=5) as llm:
    pass
with LLM("m", served_model="x") as llm:
    pass
with LLM("m", max_num_seqs="5") as llm:
    text: int = llm.generate("x")[0].outputs.text
"""


def test_the_code_in_the_docs_passes_mypy_strict(tmp_path: Path) -> None:
    """And mistakes don't."""
    pytest.importorskip("mypy")
    files = []
    for name, kind, code in snippets():
        # allspark's results are unions, and so are those of serving.md's clients; Ray is an extra.
        if kind == "python" and not name.startswith(("allspark", "cluster", "serving")):
            file = tmp_path / f"{name.replace('.', '_').replace('-', '_')}.py"
            file.write_text(code)
            files.append(file)
    assert len(files) >= 10
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    lines = strict(tmp_path / "cache", *files, wrong).replace(f"{tmp_path}/", "").splitlines()
    assert [line for line in lines if not line.startswith("wrong.py")] == [
        f"Found 4 errors in 1 file (checked {len(files) + 1} source files)"
    ]
    errors = [line.split(":")[1] for line in lines if ": error:" in line]
    assert errors == ["4", "6", "8", "9"]
