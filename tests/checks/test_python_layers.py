"""The rooms of the Python layer: which may import which, and which touch the extension."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "headrace"
# From the bottom up: each imports from its own line and those above. Modules of the top folder are
# rooms of their own.
LAYERS = (
    {"errors", "quoting", "short_repr", "named_enum", "embedding"},
    {"hub", "limited"},
    {"options", "text"},
    {"media"},
    {"prompts"},
    {"grammar", "packed", "parsers"},
    {"native"},
    {"llm"},
    {"compat", "protocol"},
    {"batch"},
    {"server"},
    {"ray"},
    {"allspark", "cli"},
    {"__init__", "__main__"},
)
MOST_FILES = 20
# Folders, and single modules that wrap one part of the extension each.
OF_THE_EXTENSION = {"native", "grammar", "packed.py", "media/item.py", "media/pictures.py"}
# What the public names of the package itself may be imported by.
OF_PUBLIC_NAMES = {"cli", "compat", "server", "__main__"}


def modules() -> Iterator[Path]:
    yield from (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imported(module: Path) -> set[str]:
    """What of this package a module imports: names below `headrace`, in functions too."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "headrace":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("headrace.")}
    return found


def test_imports_point_down() -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for module in modules():
        assert room(module) in level, f"{module}: add its room to LAYERS"
        for name in imported(module) - {"_core"}:
            if name not in level:
                if room(module) not in OF_PUBLIC_NAMES:
                    wrong.append(f"{module}: {name} from the package itself")
            elif level[name] > level[room(module)]:
                wrong.append(f"{module}: {name}")
    assert not wrong, wrong


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
