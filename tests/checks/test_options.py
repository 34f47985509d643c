"""The options stand in one place, the public C++ headers. What repeats them is generated."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import generate_options  # noqa: E402
from option_table import HEADERS, Table, body, read_enum, read_fields  # noqa: E402

# What models tell, which is bound by hand.
RESULTS = ("ModelInfo", "ModelStats", "LoraInfo")


def test_what_is_generated_is_up_to_date() -> None:
    old = [str(path.relative_to(ROOT)) for path, _ in generate_options.outdated(ROOT)]
    assert not old, "run python tools/generate_options.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository of what the tool reads and writes."""
    for name in [*generate_options.files(Table(ROOT), ROOT), f"{HEADERS}/placeholder"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    for header in (ROOT / HEADERS).glob("*.h"):
        shutil.copy(header, tmp_path / HEADERS)
    stub = "python/headrace/_core.pyi"
    shutil.copy(ROOT / stub, tmp_path / stub)
    return tmp_path


def test_a_new_option_reaches_every_place(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = copy / HEADERS / "sampling_params.h"
    text = header.read_text()
    new = "  /// Never seen before.\n  int32_t top_secret = 7;  ///< 0 = off\n"
    header.write_text(text.replace("  float min_p", f"{new}  float min_p"))
    with pytest.raises(ValueError, match="top_secret its place in C_ORDER"):
        list(generate_options.outdated(copy))
    order = generate_options.C_ORDER["SamplingParams"] + " top_secret"
    monkeypatch.setitem(generate_options.C_ORDER, "SamplingParams", order)
    written = dict(generate_options.outdated(copy))
    lines = {
        "c_params.h": "  int32_t top_secret; /* default 7 */",
        "c_option_fields.inc": "  out.top_secret = in.top_secret;",
        "bind_options.cc": '      .field("top_secret", &SamplingParams::top_secret)',
        "_core.pyi": "        top_secret: int = 7,",
        "fake_options.py": "    top_secret: int = 7",
        "options.md": "| `top_secret` | 7 | Never seen before. 0 = off |",
    }
    places = {path.name: text.splitlines() for path, text in written.items()}
    assert {name for name, line in lines.items() if line in places[name]} == set(lines)


@pytest.mark.parametrize("line", ["int32_t a, b;", "int32_t a[3];", "int32_t a = {1};", "#if X"])
def test_a_field_that_it_cannot_read_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="as: type name = default;"):
        read_fields(f"struct S {{\n  {line}\n\n}};\n", "S")
    with pytest.raises(ValueError, match="as: kName,"):
        read_enum(f"enum class E : uint8_t {{\n  {line}\n\n}};\n", "E")


def names_of_fields(struct: str) -> set[str]:
    text = (ROOT / HEADERS / "engine.h").read_text()
    text = re.sub(r"//[^\n]*", "", "\n".join(body(text, f"struct {struct} {{\n")))
    text = re.sub(r"<[^;]*?>|= [^,;]*|\{\}", "", text)
    parts = [part for field in text.split(";")[:-1] for part in field.split(",")]
    return {part.split()[-1] for part in parts}


@pytest.mark.parametrize("name", RESULTS)
def test_results_have_the_same_fields_in_python(name: str) -> None:
    stub = ast.parse((ROOT / "python/headrace/_core.pyi").read_text())
    (declared,) = [n for n in stub.body if isinstance(n, ast.ClassDef) and n.name == name]
    properties = {n.name for n in declared.body if isinstance(n, ast.FunctionDef)}
    assert properties == names_of_fields(name)
