"""The rooms of the Python layer: which may import which, and which touch the extension."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "headrace"
ROW = re.compile(r"^\| (`.*`) \|.*\|(.*)\|$", re.MULTILINE)
MOST_FILES = 20
# Folders, and single modules that wrap one part of the extension each.
OF_THE_EXTENSION = {"text", "native", "grammar", "packed.py", "media/item.py", "media/pictures.py"}
# What the public names of the package itself may be imported by.
OF_PUBLIC_NAMES = {"allspark", "cli", "compat", "server", "__main__"}


def table() -> tuple[list[set[str]], dict[str, list[str]]]:
    """ARCHITECTURE.md's: the rooms of each row, and the sub-rooms of each room, from the bottom up.
    The package's own modules are above all."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    text = text[text.index("| Rooms | What they hold | Sub-rooms |") :].split("\n\n")[0]
    layers, inner = [], {}
    for rooms, parts in ROW.findall(text):
        layers.append(set(re.findall(r"`(\w+)`", rooms)))
        for part in filter(str.strip, parts.split(";")):
            owner, *names = re.findall(r"`(\w+)`", part)
            inner[owner] = names
    return [*layers, {"__init__", "__main__"}], inner


LAYERS, SUB_ROOMS = table()


@cache
def modules() -> list[Path]:
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def sub_room(module: Path) -> str:
    """Of its room; "": its modules at the top."""
    return module.parts[1] if len(module.parts) > 2 else ""


@cache
def imports(module: Path) -> set[str]:
    """What of this package a module imports, in functions too: names below `headrace`."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "headrace":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace."):
            base = str(node.module).removeprefix("headrace.")
            # A name of a package may be a module in it.
            found |= {
                f"{base}.{alias.name}" if is_module(f"{base}.{alias.name}") else base
                for alias in node.names
            }
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            found |= {name.removeprefix("headrace.") for name in names if "headrace." in name}
    return found


def is_module(name: str) -> bool:
    path = PACKAGE / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def file_of(name: str) -> Path:
    path = Path(name.replace(".", "/"))
    return path / "__init__.py" if (PACKAGE / path).is_dir() else path.with_suffix(".py")


def imported(module: Path) -> set[str]:
    """The rooms that a module imports from."""
    return {name.split(".")[0] for name in imports(module)}


def test_imports_point_down() -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for module in modules():
        assert room(module) in level, f"{module}: add its room to the table of ARCHITECTURE.md"
        for name in imported(module) - {"_core"}:
            if name not in level:
                if room(module) not in OF_PUBLIC_NAMES:
                    wrong.append(f"{module}: {name} from the package itself")
            elif level[name] > level[room(module)]:
                wrong.append(f"{module}: {name}")
    assert not wrong, wrong


def test_sub_rooms_import_from_those_before_them() -> None:
    known = {(module.parts[0], sub_room(module)) for module in modules() if sub_room(module)}
    assert known == {(owner, name) for owner, names in SUB_ROOMS.items() for name in names}
    wrong = []
    for module in modules():
        order = SUB_ROOMS.get(room(module), [])
        for target in map(file_of, filter(is_module, imports(module))):
            if room(target) == room(module) and sub_room(module) and sub_room(target):
                above = order[order.index(sub_room(module)) + 1 :]
                wrong += [f"{module}: {target}"] * (sub_room(target) in above)
    assert not wrong, wrong


def test_no_modules_import_each_other_in_a_circle() -> None:
    """But for the package itself, whose names are found when they are first used."""
    graph = {
        module: {file_of(name) for name in imports(module) if is_module(name)} - {module}
        for module in modules()
    }
    assert sum(map(len, graph.values())) > 500, "nothing is found"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(map(str, error.args[1]))) from None


def test_only_the_lowest_layer_imports_the_extension() -> None:
    users = [module for module in modules() if "_core" in imported(module)]
    assert any(room(user) == "native" for user in users), "nothing is found"
    wrong = [
        str(user)
        for user in users
        if user.parts[0] not in OF_THE_EXTENSION and str(user) not in OF_THE_EXTENSION
    ]
    assert wrong == ["__init__.py"], wrong


def test_rooms_stay_small() -> None:
    counts = {folder: len(list(folder.glob("*.py"))) for folder in {PACKAGE, *PACKAGE.rglob("*/")}}
    assert len(counts) > 10, "nothing is found"
    assert not {folder.name: n for folder, n in counts.items() if n >= MOST_FILES}
