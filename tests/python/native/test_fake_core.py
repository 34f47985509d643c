"""The fake engine offers what the stub of the real one says."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import fake_core
import pytest
from conftest import ROOT

STUB = ast.parse((ROOT / "python" / "headrace" / "_core.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = [node.name for node in STUB.body if isinstance(node, ast.FunctionDef)]
# The parts that only the layers below LLM use; and those that the fake has from the engine.
NOT_FAKED = {"GrammarCompiler", "GrammarKind", "TokenConstraint", "TokenMatcher"}
NOT_FAKED |= {"limit_thinking"}
NOT_FAKED |= {"normalize_patches", "resize_rgb"}
NOT_FAKED |= {
    "ChatTemplate",
    "Detokenizer",
    "OutputText",
    "StopMatch",
    "StopStrings",
    "TextTokenizer",
}


def members(node: ast.ClassDef) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            found[item.name] = None if item.decorator_list else item
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found[item.target.id] = None
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            found[item.targets[0].id] = ast.literal_eval(item.value)
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str) -> None:
    if name in NOT_FAKED:
        pytest.skip("not part of the fake")
    fake = getattr(fake_core, name)
    known = set(dir(fake)) | set(getattr(fake, "__dataclass_fields__", ()))
    for member, node in members(CLASSES[name]).items():
        if name == "HeadraceError" and member == "code":
            continue
        assert member in known, f"{name}.{member}"
        if isinstance(node, int):
            assert getattr(fake, member) == node
        if isinstance(node, ast.FunctionDef) and callable(getattr(fake, member)):
            wanted = [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)]
            given = list(inspect.signature(getattr(fake, member)).parameters)
            assert given == wanted, f"{name}.{member}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    if name in NOT_FAKED:
        pytest.skip("not part of the fake")
    assert callable(getattr(fake_core, name))
