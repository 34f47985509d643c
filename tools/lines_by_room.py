"""How many lines each room has, at two commits: python tools/lines_by_room.py BEFORE [AFTER]

Rooms are the top folders, and those of cpp/, tests/ and python/. Source, tests, scripts and docs
count; goldens, checkpoints and other data don't."""

from __future__ import annotations

import argparse
import subprocess
from collections import Counter
from pathlib import PurePosixPath

KINDS = {
    ".c",
    ".cc",
    ".cmake",
    ".cu",
    ".cuh",
    ".h",
    ".inc",
    ".js",
    ".md",
    ".py",
    ".pyi",
    ".sh",
    ".txt",
}
DEEPER = {"cpp", "python", "tests"}


def room_of(path: str) -> str:
    folders = PurePosixPath(path).parts[:-1]
    if folders[:2] == ("python", "headrace"):
        return "/".join(folders[:3])
    return "/".join(folders[: 2 if folders[:1] and folders[0] in DEEPER else 1]) or "."


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def lines_by_room(commit: str) -> Counter[str]:
    empty = git("hash-object", "-t", "tree", "/dev/null").strip()
    found: Counter[str] = Counter()
    for line in git("diff", "--numstat", "--no-renames", empty, commit).splitlines():
        added, _, path = line.split("\t")
        if added != "-" and PurePosixPath(path).suffix in KINDS:
            found[room_of(path)] += int(added)
    return found


def table(before: Counter[str], after: Counter[str]) -> str:
    rows = ["| room | before | after | change |", "|---|---|---|---|"]
    for room in sorted({*before, *after}):
        rows.append(
            f"| `{room}` | {before[room]} | {after[room]} | {after[room] - before[room]:+} |"
        )
    first, last = before.total(), after.total()
    rows.append(f"| all | {first} | {last} | {last - first:+} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    args = parser.parse_args()
    print(table(lines_by_room(args.before), lines_by_room(args.after)))


if __name__ == "__main__":
    main()
