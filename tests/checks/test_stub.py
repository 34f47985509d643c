"""mypy's stubtest holds python/headrace/_core.pyi against the built module."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What the stub leaves out: a method that pybind11 gives each enumeration.
ALLOWED = r"headrace\._core\.\w+\.__pybind11_native_enum__"


def read_signature(doc: str) -> inspect.Signature | None:
    """Of the first line of a bound function's docstring, where pybind11 writes it. Without types:
    they are those of the conversions, wider than what the stub promises."""
    line = doc.partition("\n")[0]
    try:
        (function,) = ast.parse(f"def {line}: ...").body
    except SyntaxError:
        return None
    assert isinstance(function, ast.FunctionDef)
    given = function.args

    def parameter(arg: ast.arg, kind: Any, default: ast.expr | None = None) -> inspect.Parameter:
        value = inspect.Parameter.empty if default is None else ast.literal_eval(default)
        return inspect.Parameter(arg.arg, kind, default=value)

    required = len(given.args) - len(given.defaults)
    parameters = [
        parameter(
            arg,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            given.defaults[i - required] if i >= required else None,
        )
        for i, arg in enumerate(given.args)
    ]
    if given.vararg:
        parameters.append(parameter(given.vararg, inspect.Parameter.VAR_POSITIONAL))
    for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        parameters.append(parameter(arg, inspect.Parameter.KEYWORD_ONLY, default))
    if given.kwarg:
        parameters.append(parameter(given.kwarg, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


@pytest.mark.skipif(not importlib.util.find_spec("headrace._core"), reason="the engine isn't built")
def test_the_stub_says_what_the_module_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mypy import stubtest

    inspect_signature = stubtest.safe_inspect_signature
    read = set()

    def signature(runtime: Any) -> inspect.Signature | None:
        if type(runtime).__name__ not in ("instancemethod", "builtin_function_or_method"):
            if type(runtime).__name__ == "wrapper_descriptor":
                return None  # the __init__ of a class that isn't made in Python
            return inspect_signature(runtime)
        found = read_signature(runtime.__doc__ or "")
        read.add(runtime.__name__)
        return found or inspect_signature(runtime)

    monkeypatch.setattr(stubtest, "safe_inspect_signature", signature)
    # All classes of pybind11 have its metaclass, which promises nothing.
    monkeypatch.setattr(stubtest, "_verify_metaclass", lambda *_, **__: iter(()))
    monkeypatch.setenv("MYPYPATH", str(ROOT / "python"))
    allowlist = tmp_path / "allowed"
    allowlist.write_text(ALLOWED)
    arguments = ["headrace._core", "--concise", "--allowlist", str(allowlist)]
    failed = stubtest.test_stubs(stubtest.parse_options(arguments))
    assert failed == 0, capsys.readouterr().out
    assert {"submit", "install_model", "resize_rgb", "__init__"} <= read
