"""The table of the GPU's numbers: measured, against its limit or peer, target, met or missed.

    python benchmarks/cuda/table.py ROWS.jsonl... [--conditions FILE]

ROWS.jsonl is what the programs of this folder append with --rows; of a number that is there more
than once the last row counts. A number that none of them brought is in the table, too. The details,
numbers without a target, come in front. A row is marked with what casts doubt on it: trials of
kernels that failed at the load, and tests of its kernel that failed (tests/gpu/run.sh adds a line
for each)."""

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Target:
    number: str  # of the row
    title: str
    least: float | None = None  # of the share, or of the figure itself
    most: float | None = None
    share: bool = False

    def text(self) -> str:
        bound = self.least if self.least is not None else self.most
        sign = ">=" if self.least is not None else "<="
        return f"{sign} {bound:.0%}" if self.share else f"{sign} {bound:g}"

    def met(self, row: dict[str, Any]) -> bool:
        value = row["share"] if self.share else row["measured"]
        if self.least is not None:
            return bool(value >= self.least)
        return bool(value <= self.most)


TARGETS = [
    Target("decode-8b", "decode step, batch 1, context 1k, 8B bf16", least=0.90, share=True),
    Target("decode-8b-int4", "decode step, batch 1, context 1k, 8B int4", least=0.70, share=True),
    Target("decode-8b-fp8", "decode step, batch 1, context 1k, 8B FP8", least=0.75, share=True),
    Target("decode-1b", "decode step, batch 1, context 1k, 1B bf16", least=0.70, share=True),
    Target("decode-moe-30b", "decode step, batch 1, 1k, 30B-A3B bf16", least=0.70, share=True),
    Target("decode-moe-30b-8", "decode step, batch 8, 1k, 30B-A3B bf16", least=0.75, share=True),
    Target("decode-moe-30b-64", "decode step, batch 64, 1k, 30B-A3B bf16", least=0.82, share=True),
    Target("linear-few", "products of 1 to 64 rows, 8B shapes, x cuBLASLt", least=1.1),
    Target("linear-some", "products of 128 to 512 rows, 8B shapes, x cuBLASLt", least=0.98),
    Target("linear-many", "products of 4096 rows, 8B shapes, x cuBLASLt", least=1.0),
    Target("linear-int4", "16 rows times int4 weights, 8B shapes, x cuBLASLt bf16", least=3.0),
    Target("linear-fp8", "FP8 products of 4096 rows, 8B shapes, x cuBLASLt FP8", least=0.95),
    Target("attention-prefill", "causal attention, d = 128, 16k tokens", least=580),
    Target("attention-prefill-many", "the same, 8 x 2k tokens", least=550),
    Target("attention-decode", "attention, batch 64, context 8k, GQA 4", least=0.87, share=True),
    Target("attention-decode-few-1k", "attention, batch 8, context 1k", least=0.68, share=True),
    Target("attention-decode-one-8k", "attention, batch 1, context 8k", least=0.68, share=True),
    Target("attention-decode-fp8", "batch 64, 8k, fp8 KV: tokens, x those of bf16", least=1.8),
    Target("attention-decode-int8", "the same, int8 KV", least=1.8),
    Target("attention-decode-uint4", "the same, uint4 KV", least=3.2),
    Target("serving-8b-1000-seqs", "1,000 requests like ShareGPT's at once, 8B bf16", least=8400),
    Target("serving-8b-1000-seqs-512", "the same, outputs cut at 512", least=12500),
    Target("serving-8b-fp8-1000-seqs-512", "the same, 8B FP8", least=15000),
    Target("decode-8b-2-gpus", "batch 1, 1k, 8B bf16 on 2 GPUs, x one", least=1.6),
    Target("decode-8b-64-2-gpus", "batch 64, 1k, 8B bf16 on 2 GPUs, x one", least=1.8),
    Target("same-bits", "what the same bits cost prompts' attention, %", most=5),
    Target("startup-8b", "process start to first token, 8B bf16", most=1.5),
    Target("trials-at-load", "trials of kernels at a machine's first load, ms", most=150),
    Target("sampling", "sampling, 128 x 152k, top-k and top-p", most=60),
    Target("sampling-top-p", "the same, top-p alone", most=80),
    Target("sampling-temperature", "the same, temperature alone", most=60),
    Target("sampling-temperature-1", "one row, temperature alone", most=15),
    Target("sampling-logprobs", "128 rows, greedy, 5 log-probabilities", most=100),
]
# What an H100 gave of attention-prefill's shape with tiles of 128 keys and without splits: its
# bits depend on how a prompt is cut up (docs/lab/cuda_steps.md).
FREE_SUMS = 477
# The suites of tests of kernels that have rows of their own, and the numbers of these.
SUITES = {
    "Attention": "attention-",
    "Linear": "linear-(?!int4|fp8)",
    "QuantLinear": "linear-int4",
    "RoundedLinear": "linear-fp8",
    "RowKernels": "add-rms-norm|rope-kv-write",
    "Sample": "sampling",
    "Segments": "segments-",
}
HEAD = ("number", "measured", "limit or peer", "share", "target", "")


def read_rows(files: list[Path]) -> dict[str, dict[str, Any]]:
    """By number; the latest of each. A line that was cut off counts as not there."""
    out: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for line in "\n".join(file.read_text() for file in files if file.exists()).splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "failed_test" in row:
            failed.append(row["failed_test"])
        else:
            out[row["number"]] = row
    for test in dict.fromkeys(failed):
        numbers = SUITES.get(test.split(".")[0].split("/")[-1], "(?!)")
        for row in out.values():
            if re.match(numbers, row["number"]):
                row.setdefault("failed_tests", []).append(test)
    return out


def doubts(row: dict[str, Any]) -> str:
    """What failed that the row depends on."""
    failed = [*row.get("failed_trials", []), *row.get("failed_tests", [])]
    return f" FAILED: {', '.join(failed)}" if failed else ""


def with_cost(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The tests' verdict that one path is all there is becomes what that path costs."""
    verdict, attention = rows.get("same-bits"), rows.get("attention-prefill")
    if verdict is None or "missing" in verdict:
        return rows
    cost: dict[str, Any] = {"number": "same-bits", "missing": "it needs attention-prefill"}
    if attention is not None and "missing" not in attention:
        share = attention["measured"] / FREE_SUMS
        cost = {
            "measured": 100 * (1 - share), "unit": "%",
            "limit": FREE_SUMS, "limit_name": "TFLOP/s, sums in any order", "share": share,
        }  # fmt: skip
    return {**rows, "same-bits": cost}


def cells(title: str, row: dict[str, Any] | None, target: Target | None = None) -> tuple[str, ...]:
    goal = target.text() if target else ""
    if row is None or "missing" in row:
        why = f"not measured: {row['missing']}" if row else "not measured"
        return (title, "", "", "", goal, why)
    limit = f"{row['limit']:.4g} ({row['limit_name']})" if row["limit"] > 0 else ""
    share = f"{row['share']:.0%}" if row["limit"] > 0 else ""
    verdict = row["work"] if target is None else "met" if target.met(row) else "MISSED"
    measured = f"{row['measured']:.4g} {row['unit']}"
    return (title, measured, limit, share, goal, verdict + doubts(row))


def render(lines: list[tuple[str, ...]]) -> str:
    """As Markdown, in columns."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD) - 1)]
    out = []
    for line in lines:
        text = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        out.append("| " + " | ".join([*text, line[-1]]) + " |")
    out.insert(1, "|" + "---|" * len(HEAD))
    return "\n".join(out)


def report(rows: dict[str, dict[str, Any]]) -> str:
    rows = with_cost(rows)
    targeted = {target.number for target in TARGETS}
    details = [cells(number, row) for number, row in rows.items() if number not in targeted]
    table = [cells(target.title, rows.get(target.number), target) for target in TARGETS]
    parts = [render([(*HEAD[:4], "", "conditions"), *details])] if details else []
    return "\n\n".join([*parts, render([HEAD, *table])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--conditions", type=Path, help="text to print in front")
    args = parser.parse_args()
    if args.conditions:
        print(args.conditions.read_text())
    print(report(read_rows(args.rows)))


if __name__ == "__main__":
    main()
