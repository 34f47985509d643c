"""The table of the GPU's numbers: measured, against its limit or peer, target, met or missed.

    python benchmarks/cuda/table.py ROWS.jsonl [--conditions FILE]

ROWS.jsonl is what the programs of this folder append with --rows. A number that none of them
brought is in the table, too. The details, numbers without a target, come in front."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path


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

    def met(self, row: dict) -> bool:
        value = row["share"] if self.share else row["measured"]
        return value >= self.least if self.least is not None else value <= self.most


TARGETS = [
    Target("decode-8b", "decode step, batch 1, context 1k, 8B bf16", least=0.85, share=True),
    Target("decode-1b", "decode step, batch 1, context 1k, 1B bf16", least=0.70, share=True),
    Target("linear-many", "products of 4096 rows, 8B shapes, x cuBLASLt", least=0.95),
    Target("linear-many-fastest", "the same, fastest path", least=0.95),
    Target("linear-few", "products of 1 to 64 rows, 8B shapes, x cuBLASLt", least=1.1),
    Target("attention-prefill", "causal attention, d = 128, 16k tokens", least=500),
    Target("attention-decode", "attention, batch 64, context 8k, GQA 4", least=0.85, share=True),
    Target("serving-8b", "1,000 requests like ShareGPT's, 8B bf16", least=14000),
    Target("startup-8b", "process start to first token, 8B bf16", most=5),
    Target("sampling", "sampling, 128 x 152k, top-k and top-p", most=60),
]
HEAD = ("number", "measured", "limit or peer", "share", "target", "")


def read_rows(file: Path) -> dict[str, dict]:
    """By number; the latest of each. A line that was cut off counts as not there."""
    out: dict[str, dict] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        out[row["number"]] = row
    return out


def cells(title: str, row: dict | None, target: Target | None = None) -> tuple[str, ...]:
    goal = target.text() if target else ""
    if row is None or "missing" in row:
        why = f"not measured: {row['missing']}" if row else "not measured"
        return (title, "", "", "", goal, why)
    limit = f"{row['limit']:.4g} ({row['limit_name']})" if row["limit"] > 0 else ""
    share = f"{row['share']:.0%}" if row["limit"] > 0 else ""
    verdict = row["work"] if target is None else "met" if target.met(row) else "MISSED"
    return (title, f"{row['measured']:.4g} {row['unit']}", limit, share, goal, verdict)


def render(lines: list[tuple[str, ...]]) -> str:
    """As Markdown, in columns."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD) - 1)]
    out = []
    for line in lines:
        text = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        out.append("| " + " | ".join([*text, line[-1]]) + " |")
    out.insert(1, "|" + "---|" * len(HEAD))
    return "\n".join(out)


def report(rows: dict[str, dict]) -> str:
    targeted = {target.number for target in TARGETS}
    details = [cells(number, row) for number, row in rows.items() if number not in targeted]
    table = [cells(target.title, rows.get(target.number), target) for target in TARGETS]
    parts = [render([(*HEAD[:4], "", "conditions"), *details])] if details else []
    return "\n\n".join([*parts, render([HEAD, *table])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--conditions", type=Path, help="text to print in front")
    args = parser.parse_args()
    if args.conditions:
        print(args.conditions.read_text())
    print(report(read_rows(args.rows)))


if __name__ == "__main__":
    main()
