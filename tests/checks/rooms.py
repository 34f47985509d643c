"""The rooms of the tree, from the tables of ARCHITECTURE.md.

A table begins with "| room of `FOLDER` | includes | what it holds |". Its rows are the folders in
FOLDER, from the bottom up, and "." for the files beside them."""

import re
from pathlib import Path

ARCHITECTURE = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
HEAD = re.compile(r"^\| room of `([^`]+)` \|")
NAME = re.compile(r"`([^`]+)`")

# room -> what it may include, in the order of the rows
Table = dict[str, list[str]]


def read_tables(text: str) -> dict[str, Table]:
    """By folder."""
    tables: dict[str, Table] = {}
    table: Table | None = None
    for line in text.splitlines():
        if head := HEAD.match(line):
            table = tables[head[1]] = {}
        elif not line.startswith("|"):
            table = None
        elif table is not None and (cells := line.split("|")) and (name := NAME.search(cells[1])):
            table[name[1]] = NAME.findall(cells[2])
    return tables


def tables() -> dict[str, Table]:
    return read_tables(ARCHITECTURE.read_text(encoding="utf-8"))
