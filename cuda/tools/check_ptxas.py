#!/usr/bin/env python3
"""check_ptxas.py ALLOWED COMMAND...: runs nvcc -Xptxas -v; signs of slow code are errors: a kernel
that spills registers, and messages C75xx (wgmma products that wait for each other, setmaxnreg
without effect).

ALLOWED is a file of lines "ARCH PATTERN  # reason": kernels of that architecture (sm_80, or *)
whose mangled name matches the regular expression may spill. ptxas's statistics are left out of the
output; everything else nvcc says stays. HEADRACE_PTXAS_CHECK=warn: nothing is an error, for
machines that measure rather than build.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
SLOW = re.compile(r"\((C75\d\d)\)")
STATISTICS = re.compile(
    r"^ptxas info|^\s+\d+ bytes stack frame|Function properties for|^\s*$|^.*\.compute_\S*$"
)


def read_allowed(path: str) -> list[tuple[str, re.Pattern[str]]]:
    rules = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        rule, _, reason = line.partition("#")
        if not rule.strip():
            continue
        words = rule.split()
        if len(words) != 2 or not reason.strip():
            raise SystemExit(f"{path}:{number}: expected 'ARCH PATTERN  # reason'")
        rules.append((words[0], re.compile(words[1])))
    return rules


def spilling(report: str) -> list[tuple[str, str, int, int]]:
    """(arch, kernel, bytes stored, bytes loaded) of every kernel that spills."""
    found = []
    arch = kernel = "?"
    for line in report.splitlines():
        if match := ENTRY.search(line):
            kernel, arch = match.groups()
        elif (match := SPILLS.search(line)) and any(map(int, match.groups())):
            found.append((arch, kernel, int(match[1]), int(match[2])))
    return found


def complaints(report: str, allowed: list[tuple[str, re.Pattern[str]]]) -> list[str]:
    """What is wrong with the code, a line each."""
    found = [
        f"spills on {arch}: {kernel}: {stores} bytes stored, {loads} loaded"
        for arch, kernel, stores, loads in spilling(report)
        if not any(rule in ("*", arch) and name.search(kernel) for rule, name in allowed)
    ]
    return found + [line.strip() for line in report.splitlines() if SLOW.search(line)]


def main() -> int:
    allowed = read_allowed(sys.argv[1])
    done = subprocess.run(sys.argv[2:], capture_output=True, text=True, check=False)
    report = done.stdout + done.stderr
    kept = [line for line in report.splitlines() if not STATISTICS.search(line)]
    bad = complaints(report, allowed)
    if kept or bad:
        print("\n".join(kept + bad), file=sys.stderr)
    if not bad or done.returncode != 0 or os.environ.get("HEADRACE_PTXAS_CHECK") == "warn":
        return done.returncode
    print(f"use fewer registers, or name what spills in {sys.argv[1]}", file=sys.stderr)
    output = sys.argv[sys.argv.index("-o") + 1] if "-o" in sys.argv else None
    if output is not None:  # or the next build would take it for a good one
        Path(output).unlink(missing_ok=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
