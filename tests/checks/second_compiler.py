"""Has a second compiler read every unit of a build folder, without translating it:
second_compiler.py FOLDER [-j N] [--tests] [--built FOLDER]. Without --tests it leaves out tests/
and benchmarks/. Warnings are errors there (HEADRACE_WERROR). What another folder has compiled in
this way, with the same compiler, definitions and warnings, isn't read again."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

# Targets that must be there before a unit can be read: generated and precompiled headers.
GENERATED = re.compile(r"^(headrace_cuda_interface|.*/cmake_pch\.hxx\.pch):", re.MULTILINE)
# The options that decide what is read of a unit, and what is said of it.
READ_BY = ("-D", "-U", "-W", "-w", "-std", "-m", "-include")
TESTS = {"tests", "benchmarks"}


def reading(command: str) -> list[str]:
    """The command of compile_commands.json, without its output."""
    words = shlex.split(command)
    at = words.index("-o")
    return [*words[:at], *words[at + 2 :], "-fsyntax-only", "-Wno-unused-command-line-argument"]


def setting(folder: Path, name: str) -> str:
    """Of that build folder; empty if it has none."""
    settings = folder / "CMakeCache.txt"
    text = settings.read_text() if settings.exists() else ""
    found = re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


@cache
def objects(folder: Path) -> dict[str, dict[str, str]]:
    """Object, from the folder on -> how it is made."""
    made = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        made[str((folder / entry["output"]).resolve().relative_to(folder.resolve()))] = entry
    return made


def is_built(output: str, folder: Path, built: Path | None) -> bool:
    """Has that folder compiled this object in the same way, after all that it is made of?"""
    if built is None or setting(built, "HEADRACE_WERROR") != "ON":
        return False
    if setting(built, "CMAKE_CXX_COMPILER") != setting(folder, "CMAKE_CXX_COMPILER"):
        return False
    return output in up_to_date(built) and read_by(output, built) == read_by(output, folder)


def read_by(output: str, folder: Path) -> set[str]:
    """Those of its options in that folder."""
    words = shlex.split(objects(folder)[output]["command"])
    found = {word for word in words if word.startswith(READ_BY)}
    # It sanitizes, which only tests ask for.
    return found if room_of(output) in TESTS else found - {"-DHEADRACE_ASAN"}


def room_of(output: str) -> str:
    return output.partition("/")[0]


@cache
def up_to_date(built: Path) -> frozenset[str]:
    """The objects there that Ninja wouldn't make again."""
    subprocess.run(["ninja", "-C", str(built), "--quiet", "build.ninja"], check=True)
    # Of build.ninja itself, Ninja would only say that it may have to make it again.
    copy = built / "as_built.ninja"
    copy.write_bytes((built / "build.ninja").read_bytes())
    known = objects(built).keys()
    plan = subprocess.run(
        ["ninja", "-C", str(built), "-f", copy.name, "-n", "-v", *sorted(known)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    again = set(re.findall(r" -o (\S+\.o) ", plan))
    return frozenset(known - again)


def units(folder: Path, tests: bool, built: Path | None) -> list[tuple[str, list[str]]]:
    """Object -> how it is read."""
    found = []
    for output, entry in objects(folder).items():
        if (
            "cmake_pch" not in entry["file"]
            and (tests or room_of(output) not in TESTS)
            and not is_built(output, folder, built)
        ):
            found.append((output, reading(entry["command"])))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--tests", action="store_true", help="tests/ and benchmarks/, too")
    parser.add_argument("--built", type=Path, help="a folder whose objects needn't be read again")
    args = parser.parse_args()

    known = subprocess.run(
        ["ninja", "-C", str(args.folder), "-t", "targets", "all"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    targets = sorted(set(GENERATED.findall(known)))
    subprocess.run(
        ["ninja", "-C", str(args.folder), "-j", str(args.jobs), "--quiet", *targets], check=True
    )

    def read(unit: tuple[str, list[str]]) -> bool:
        output, command = unit
        done = subprocess.run(command, cwd=args.folder, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{output}:\n{done.stderr[:6000]}", file=sys.stderr, flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(args.jobs) as pool:
        right = list(pool.map(read, units(args.folder, args.tests, args.built)))
    print(f"{len(right)} units read, {right.count(False)} with errors or warnings")
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
