"""What ncu counted of a kernel benchmark's rows, as rows for table.py.

    python benchmarks/cuda/counts.py BENCH.log NCU.csv >>ROWS.jsonl

BENCH.log is what `gpu_kernel_bench --profile` printed, NCU.csv what ncu's `--csv --page raw
--print-units base` did: its n-th result is the n-th run that the benchmark calls profiled. Sums are
those of one launch. ncu's times of a recorded run are not to be used; counts and shares of active
cycles are."""

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
NAMES = {
    "dram__bytes.sum": "bytes of memory",
    "lts__t_bytes.sum": "bytes through L2",
    "smsp__inst_executed.sum": "instructions",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "% warps",
    "sm__inst_executed.avg.per_cycle_active": "instructions a cycle",
}


def profiled_rows(log: str) -> Iterator[tuple[str, int]]:
    """The number of each row that a profiled run belongs to, and the launches of that run."""
    launches = 0
    for line in log.splitlines():
        if found := re.fullmatch(r"profiled: (\d+) launches", line):
            launches = int(found[1])
        elif launches and line.strip():
            yield line.split()[0], launches
            launches = 0


def results(text: str) -> Iterator[dict[str, float]]:
    """Metrics of each result; the line behind the heads has their units."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    for row in list(csv.DictReader(lines))[1:]:
        values = {name: row.get(name) or "" for name in (TENSOR, *NAMES)}
        yield {name: float(v.replace(",", "")) for name, v in values.items() if v}


def counts(log: str, text: str) -> Iterator[dict[str, object]]:
    for (number, launches), values in zip(profiled_rows(log), results(text), strict=False):
        parts = [
            f"{values[name] / (launches if name.endswith('.sum') else 1):.4g} {title}"
            for name, title in NAMES.items()
            if name in values
        ]
        yield {
            "number": f"counts-{number}", "work": "a launch: " + ", ".join(parts),
            "measured": values.get(TENSOR, 0.0), "unit": "% tensor cores", "limit": 0,
            "limit_name": "", "share": 0,
        }  # fmt: skip


def main() -> None:
    log, text = (Path(file).read_text(errors="replace") for file in sys.argv[1:3])
    for row in counts(log, text):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
