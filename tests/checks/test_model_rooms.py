"""The rooms of cpp/model include downwards only, in the order that ARCHITECTURE.md gives."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "cpp/model"
INCLUDE = re.compile(r'^\s*#\s*include\s+"model/([a-z]+)/', re.MULTILINE)


def rooms_in_order() -> list[str]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    paragraph = text.split("The rooms of `cpp/model`, from the bottom up")[1].split("\n\n")[0]
    return re.findall(r"`([a-z]+)`", paragraph)


def violations(order: list[str], room: str, text: str) -> list[str]:
    below = order[: order.index(room) + 1]
    return [target for target in INCLUDE.findall(text) if target not in below]


def test_every_room_has_its_place() -> None:
    folders = {path.name for path in MODEL.iterdir() if path.is_dir()}
    order = rooms_in_order()
    assert sorted(order) == sorted(folders)
    assert len(order) == len(set(order))


def test_includes_point_down() -> None:
    order = rooms_in_order()
    found = {}
    for path in sorted(MODEL.rglob("*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        room = path.relative_to(MODEL).parts[0]
        if bad := violations(order, room, path.read_text()):
            found[path.relative_to(ROOT).as_posix()] = bad
    assert not found


def test_an_upward_edge_is_found() -> None:
    order = rooms_in_order()
    assert violations(order, "blocks", '#include "model/decoder/decoder.h"\n') == ["decoder"]
    assert violations(order, "families", '#include "model/blocks/block.h"\n') == []
    assert violations(order, "decoder", '#include "model/families/family.h"\n') == ["families"]


def test_rooms_are_small() -> None:
    for folder in [MODEL, *MODEL.rglob("*/")]:
        files = [path for path in folder.iterdir() if path.is_file()]
        assert len(files) < 20, folder
