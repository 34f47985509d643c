"""Has a second compiler read every unit of a build folder, without translating it:
second_compiler.py FOLDER [-j N] [--tests]. Without --tests it leaves out tests/ and
benchmarks/. Warnings are errors there (HEADRACE_WERROR)."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Targets that must be there before a unit can be read: generated and precompiled headers.
GENERATED = re.compile(r"^(headrace_cuda_interface|.*/cmake_pch\.hxx\.pch):", re.MULTILINE)


def reading(command: str) -> list[str]:
    """The command of compile_commands.json, without its output."""
    words = shlex.split(command)
    at = words.index("-o")
    return [*words[:at], *words[at + 2 :], "-fsyntax-only", "-Wno-unused-command-line-argument"]


def units(folder: Path, tests: bool) -> list[tuple[str, list[str]]]:
    """Object -> how it is read."""
    found = []
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        room = Path(entry["output"]).resolve().relative_to(folder.resolve()).parts[0]
        if "cmake_pch" not in entry["file"] and (tests or room not in {"tests", "benchmarks"}):
            found.append((entry["output"], reading(entry["command"])))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--tests", action="store_true", help="tests/ and benchmarks/, too")
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
        right = list(pool.map(read, units(args.folder, args.tests)))
    print(f"{len(right)} units read, {right.count(False)} with errors or warnings")
    return 0 if right and all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
