"""Runs a script in the shape of one of vLLM's examples."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM


def run_script(name: str, code: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With "headrace" for "vllm" in its imports, and `model`'s folder for MODEL."""
    code = re.sub(r"\bvllm\b", "headrace", code).replace("MODEL", str(model))
    script = ["script.py", "--max-tokens", "16", "--temperature=0", "--max_model_len", "512"]
    monkeypatch.setattr(sys, "argv", script)
    names: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, f"{name}.py", "exec"), names)
    for value in names.values():
        if isinstance(value, LLM):
            value.close()
