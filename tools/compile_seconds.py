"""What a build folder took to compile, by room: python tools/compile_seconds.py build/release

Reads Ninja's log: the seconds of the last time that each object was made. They are CPU seconds if
the machine had a core for each job. An object that ccache gave counts with the time that this took:
to measure a cold build, set CCACHE_DISABLE=1 and begin with an empty folder."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path


def room_of(output: str) -> str:
    """cpp/model of cpp/model/CMakeFiles/headrace_model.dir/Unity/unity_room_blocks_cxx.cxx.o"""
    return re.split(r"/?CMakeFiles/", output)[0] or "tests"  # the precompiled headers


def seconds_by_room(log: str) -> dict[str, tuple[int, float]]:
    """Room -> units, seconds."""
    last: dict[str, float] = {}
    for line in log.splitlines():
        if line.startswith("#"):
            continue
        begin, end, _, output, _ = line.split("\t")
        if output.endswith((".o", ".gch")):
            last[output] = (int(end) - int(begin)) / 1000
    rooms: dict[str, list[float]] = defaultdict(list)
    for output, seconds in last.items():
        rooms[room_of(output)].append(seconds)
    return {room: (len(times), sum(times)) for room, times in rooms.items()}


def table(rooms: dict[str, tuple[int, float]]) -> str:
    rows = ["| room | units | seconds |", "|---|---|---|"]
    for room, (units, seconds) in sorted(rooms.items(), key=lambda row: -row[1][1]):
        rows.append(f"| `{room}` | {units} | {seconds:.0f} |")
    all_units, all_seconds = (sum(row[i] for row in rooms.values()) for i in (0, 1))
    rows.append(f"| all | {all_units:.0f} | {all_seconds:.0f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    print(table(seconds_by_room((args.folder / ".ninja_log").read_text())))


if __name__ == "__main__":
    main()
