"""benchmarks/cuda/table.py: verdicts, and numbers that nobody measured."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load():
    spec = importlib.util.spec_from_file_location("gpu_table", ROOT / "benchmarks/cuda/table.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_table"] = module
    spec.loader.exec_module(module)
    return module


table = load()


def row(number: str, measured: float, share: float = 0.0, limit: float = 0.0) -> dict:
    return {
        "number": number, "work": f"{number} at work", "measured": measured, "unit": "u",
        "limit": limit, "limit_name": "peer", "share": share,
    }  # fmt: skip


def line_of(text: str, title: str) -> str:
    (line,) = [line for line in text.splitlines() if f"| {title} " in line]
    return line


@pytest.mark.parametrize(
    ("number", "good", "bad"),
    [
        ("decode-8b", row("decode-8b", 1, 0.9, 2), row("decode-8b", 1, 0.89, 2)),
        ("linear-some", row("linear-some", 0.98, 0.8, 2), row("linear-some", 0.97, 0.8, 2)),
        ("sampling", row("sampling", 60, 0.1, 2), row("sampling", 60.1, 2.0, 2)),
        ("linear-few", row("linear-few", 1.1, 1.1, 1), row("linear-few", 1.09, 1.09, 1)),
    ],
)
def test_verdicts(number: str, good: dict, bad: dict) -> None:
    (target,) = [target for target in table.TARGETS if target.number == number]
    assert "| met |" in line_of(table.report({number: good}), target.title)
    assert "| MISSED |" in line_of(table.report({number: bad}), target.title)


def test_what_is_missing_is_named() -> None:
    text = table.report({"linear-few": {"number": "linear-few", "missing": "no cuBLASLt"}})
    assert text.count("not measured") == len(table.TARGETS)
    assert "not measured: no cuBLASLt" in text


def test_what_the_same_bits_cost_is_what_attention_lacks() -> None:
    (target,) = [target for target in table.TARGETS if target.number == "same-bits"]
    one_path = {"same-bits": {"number": "same-bits", "one_path": True}}

    def line(measured: float) -> str:
        rows = {**one_path, "attention-prefill": row("attention-prefill", measured)}
        return " ".join(line_of(table.report(rows), target.title).split())

    assert "| 28.3 % | 477 (TFLOP/s, sums in any order) | 72% | <= 5 | MISSED |" in line(342)
    assert "| 4.612 % |" in line(455)
    assert line(455).endswith("| met |")
    assert "it needs attention-prefill" in line_of(table.report(one_path), target.title)
    differ = {"same-bits": {"number": "same-bits", "missing": "kernels differ in bits"}}
    assert "not measured: kernels differ" in line_of(table.report(differ), target.title)


def test_details_come_first_with_their_conditions() -> None:
    text = table.report({"linear-o-4": row("linear-o-4", 12.5, 1.25, 10)})
    first = text.splitlines()[2]
    for part in ("12.5 u", "10 (peer)", "125%", "linear-o-4 at work"):
        assert part in first


def test_rows_are_read_up_to_one_that_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    lines = [json.dumps(row("a", 1)), json.dumps(row("a", 2)), '{"number": "b", "meas']
    file.write_text("\n".join(lines))
    assert table.read_rows([file]) == {"a": row("a", 2)}
    assert table.read_rows([tmp_path / "none"]) == {}


def test_rows_of_kernels_that_failed_are_marked(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    numbers = ("linear-few", "linear-fp8", "sampling")
    failed = [{"failed_test": "All/RoundedLinear.A/1"}, {"failed_test": "Other.B"}]
    trial = {**row("decode-8b", 1, 1, 1), "failed_trials": ["wgmma (bits): mma.sync"]}
    lines = [*(row(number, 1, 1, 1) for number in numbers), *failed, failed[0], trial]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    marked = [
        line for line in table.report(table.read_rows([file])).splitlines() if "FAILED" in line
    ]
    assert len(marked) == 2
    assert marked[0].endswith("| met FAILED: wgmma (bits): mma.sync |")
    assert "FP8 products of 4096 rows" in marked[1]
    assert marked[1].endswith("FAILED: All/RoundedLinear.A/1 |")


def test_suites_of_marks_are_tests() -> None:
    tests = "".join(file.read_text() for file in (ROOT / "tests/cuda/kernels").glob("*_test.cc"))
    for suite in table.SUITES:
        assert f"({suite}, " in tests


def test_every_target_is_a_number_that_a_program_reports() -> None:
    folder = ROOT / "benchmarks/cuda"
    files = [*folder.rglob("*.cc"), ROOT / "tests/gpu/run.sh"]
    sources = "".join(path.read_text() for path in files)
    for target in table.TARGETS:
        literal = f'"{target.number}"'
        made = [f'"{target.number.removesuffix("-8b")}-" + (arguments.shape', literal]
        for size in ("8b-int4", "8b-fp8", "8b", "1b", "moe-30b"):
            made.append(literal.replace(size, '" + size + "').replace(' + ""', ""))
        made.append(f'"{re.sub("(-fp8)?-1000-seqs(-512)?$", "", target.number)}" + kept + kind')
        made.append(f'"{target.number.removesuffix("-2-gpus")}" + behind')
        assert any(text in sources for text in made), target.number
