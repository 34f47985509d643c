"""Includes point down only: what a room may include stands in the tables of ARCHITECTURE.md.

In the table of `cpp` a row names all that its room includes. In the table of a room, its rooms
include rows above them, and what their row names. All include the public headers."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/checks"))

from rooms import Table, read_tables, tables  # noqa: E402

TABLES = tables()
ROOMS = TABLES["cpp"]
PUBLIC = "headrace"
MOST_FILES = 20
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def sources(folder: str = "cpp") -> list[Path]:
    suffixes = {".h", ".cc", ".inc"}
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in suffixes)


def room_of(folder: str, path: Path) -> str:
    """The folder of `folder` that a file is in; "." of those that stand there themselves."""
    parts = path.relative_to(ROOT / folder).parts
    return parts[0] if len(parts) > 1 else "."


def is_in(target: str, place: str) -> bool:
    return target == place or target.startswith(place + "/")


def violations(allowed: list[str], text: str) -> list[str]:
    places = [PUBLIC, *allowed]
    return [t for t in INCLUDE.findall(text) if not any(is_in(t, place) for place in places)]


def allowed_in(folder: str, room: str, table: Table) -> list[str]:
    """What a room of cpp, or of a room of cpp, may include."""
    if folder == "cpp":
        return [room, *table[room]]
    prefix = folder.removeprefix("cpp/")
    rows = list(table)
    below = [f"{prefix}/{name}" for name in rows[: rows.index(room) + 1] if name != "."]
    return below + table[room]


@pytest.mark.parametrize("folder", TABLES)
def test_includes_point_down(folder: str) -> None:
    table = TABLES[folder]
    found = {}
    for path in sources(folder):
        room = room_of(folder, path)
        if (folder, room) == ("cpp", "include"):
            allowed = []
        else:
            assert room in table, f"{path}: add its room to the table of {folder}"
            allowed = allowed_in(folder, room, table)
        text = path.read_text()
        if room == ".":  # files beside the rooms include each other
            text = re.sub(rf'#include "{folder.removeprefix("cpp/")}/\w+\.h"', "", text)
        if wrong := violations(allowed, text):
            found[path.relative_to(ROOT).as_posix()] = wrong
    assert not found


@pytest.mark.parametrize("folder", TABLES)
def test_every_row_is_a_room_and_needs_what_it_names(folder: str) -> None:
    used: dict[str, set[str]] = {room: set() for room in TABLES[folder]}
    for path in sources(folder):
        used.get(room_of(folder, path), set()).update(INCLUDE.findall(path.read_text()))
    for room, named in TABLES[folder].items():
        assert (ROOT / folder / room).is_dir(), room
        for place in named:
            assert any(is_in(target, place) for target in used[room]), f"{room} needs no {place}"


@pytest.mark.parametrize("folder", ["cpp/engine", "cpp/model", "tests/cpp/engine"])
def test_rooms_stay_small(folder: str) -> None:
    rooms = [p for p in (ROOT / folder).rglob("*") if p.is_dir()]
    assert len(rooms) > 8, "nothing is found"
    assert not {p.name: n for p in rooms if (n := len(list(p.glob("*.*")))) >= MOST_FILES}


def test_the_tables_are_found() -> None:
    assert {"cpp", "cpp/engine", "cpp/model"} <= TABLES.keys()
    lines = ("| room of `cpp` | includes |", "|---|---|", "| `a` | |", "| `b` | `a`, `c/d` |")
    assert read_tables("\n".join([*lines, "", "| `e` | `a` |"])) == {
        "cpp": {"a": [], "b": ["a", "c/d"]}
    }


def test_an_upward_edge_is_found() -> None:
    def found(folder: str, room: str, target: str) -> bool:
        allowed = allowed_in(folder, room, TABLES[folder])
        return violations(allowed, f'#include "{target}"\n') == [target]

    assert found("cpp", "kv", "sched/scheduler.h")
    assert found("cpp", "sched", "backend/contract/backend.h")
    assert not found("cpp", "sched", "kv/block_pool.h")
    assert found("cpp/engine", "request", "engine/loop/model_control.h")
    assert found("cpp/engine", "loop", "engine/engine_access.h")
    assert not found("cpp/engine", "loop", "engine/request/endings.h")
    assert found("cpp/model", "decoder", "model/families/family.h")
    assert not found("cpp/model", "decoder", "model/blocks/block.h")


def test_the_loop_knows_headers_of_models_that_have_no_code() -> None:
    """What is linked without models is compiled without them."""
    table = TABLES["cpp/engine"]
    rows = list(table)
    for room in rows[: rows.index("loop") + 1]:
        for place in table[room]:
            assert place not in {"model", "backend", "backend/cpu"}, room
            if place.startswith("model/"):
                header = ROOT / "cpp" / place
                assert header.is_file(), place
                assert not header.with_suffix(".cc").exists(), place
                assert not re.search(r'#include "model/', header.read_text()), place


def cuda_violations(path: str, text: str) -> list[str]:
    """cuda/ uses the rooms up to backend; its device code uses itself and the CUDA toolkit, or the
    emulation in its place; its host side no CUDA header but in runtime/runtime_api.cc."""
    found = []
    for target in INCLUDE.findall(text):
        parts = target.split("/")
        if path.startswith("cuda/device/"):
            if not target.startswith("cuda/device/") and target != "cuda_emulation.h":
                found.append(target)
        elif len(parts) > 1 and parts[0] not in {"cuda", PUBLIC, "backend", *ROOMS["backend"]}:
            found.append(target)
    if path.startswith("cuda/host/") and path != "cuda/host/runtime/runtime_api.cc":
        found += re.findall(r"#\s*include\s*<(cuda[^>]*)>", text)
    return found


def test_cuda_uses_the_rooms_below_the_models() -> None:
    found = {}
    for path in sorted((ROOT / "cuda").rglob("*")):
        if path.suffix in {".h", ".cc", ".cu", ".cuh"}:
            name = path.relative_to(ROOT).as_posix()
            if bad := cuda_violations(name, path.read_text()):
                found[name] = bad
    assert not found
    assert cuda_violations("cuda/device/x.cuh", '#include "base/check.h"\n') == ["base/check.h"]
    assert cuda_violations("cuda/host/x.cc", '#include "model/json/json.h"\n') == [
        "model/json/json.h"
    ]


def test_cpp_never_includes_cuda() -> None:
    for path in sources():
        assert not re.search(r"#\s*include\s*[<\"]cuda", path.read_text()), path


def test_public_headers_hold_no_feature_switch() -> None:
    for path in (ROOT / "cpp/include/headrace").glob("*.h"):
        text = path.read_text()
        if path.name in ("c.h", "c_params.h", "c_text.h"):  # C and C++ read them
            text = re.sub(r"#ifdef __cplusplus\n(extern \"C\" \{|\})\n#endif", "", text)
        if path.name == "abi.h":  # says what the compiler lacks
            text = re.sub(r"#if __cplusplus <= \d+L\n#error[^#]*#endif", "", text)
        assert not re.search(r"#\s*if", text), f"{path.name} has a conditional"
        assert "pybind" not in text
        assert "cuda" not in re.sub(r'//.*|"[^"]*"', "", text).lower()
