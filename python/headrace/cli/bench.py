"""headrace bench: throughput and latency of a model on this machine."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.cli.options import add_engine_options, add_model_option, load_model, tell_of_toy
from headrace.cli.usage import UsageError

if TYPE_CHECKING:
    from headrace import LLM, RequestOutput, SamplingParams


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure throughput and latency",
        description="Measures a batch of random prompts (throughput), then one prompt at a time "
        "(latency). Outputs have exactly --output-len tokens.",
    )
    add_model_option(parser)
    parser.add_argument("--num-prompts", type=int, default=32, help="prompts of the batch")
    parser.add_argument("--input-len", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--output-len", type=int, default=64, help="tokens of each output")
    parser.add_argument("--iterations", type=int, default=5, help="prompts one at a time")
    parser.add_argument("--bench-seed", type=int, default=0, help="of the random prompts")
    parser.add_argument("--dummy", action="store_true", help="random weights: only shapes matter")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for name in ("num_prompts", "input_len", "output_len", "iterations"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1")
    tell_of_toy(args)
    more = {"load_choices": "dummy"} if args.dummy else {}
    with load_model(args, **more) as llm:
        report = _Bench(llm, args).report()
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print_report(report)
    return 0


@dataclass
class _Bench:
    llm: LLM
    args: argparse.Namespace

    def __post_init__(self) -> None:
        self._random = random.Random(self.args.bench_seed)

    def report(self) -> dict[str, Any]:
        info = self.llm.model_info
        self._measure(1)  # the first steps touch memory for the first time
        return {
            "model": info.path,
            "family": info.family,
            "dtype": info.dtype,
            "isa": info.isa,
            "num_threads": info.num_threads,
            "tensor_parallel_size": info.tensor_parallel_size,
            "data_parallel_size": info.data_parallel_size,
            "num_nodes": info.num_nodes,
            "num_parameters": info.num_parameters,
            "load_seconds": info.load_seconds,
            "input_len": self.args.input_len,
            "output_len": self.args.output_len,
            "throughput": self._throughput(),
            "latency": self._latency(),
        }

    def _throughput(self) -> dict[str, float]:
        count = self.args.num_prompts
        seconds, _ = self._measure(count, show_bar=sys.stderr.isatty())
        return {
            "num_prompts": count,
            "seconds": seconds,
            "requests_per_second": count / seconds,
            "input_tokens_per_second": count * self.args.input_len / seconds,
            "output_tokens_per_second": count * self.args.output_len / seconds,
        }

    def _latency(self) -> dict[str, Any]:
        totals, firsts, gaps = [], [], []
        for _ in range(self.args.iterations):
            seconds, (output,) = self._measure(1)
            first = output.get("first_token_time") or 0.0
            whole = output.get("model_forward_time") or 0.0
            totals.append(seconds)
            firsts.append(first)
            if self.args.output_len > 1:
                gaps.append((whole - first) / (self.args.output_len - 1))
        return {
            "iterations": self.args.iterations,
            "seconds": _spread(totals),
            "time_to_first_token": _spread(firsts),
            "time_per_output_token": _spread(gaps),
        }

    def _measure(self, count: int, show_bar: bool = False) -> tuple[float, list[RequestOutput]]:
        prompts = [self._prompt() for _ in range(count)]
        start = time.perf_counter()
        outputs = self.llm.generate(prompts, self._params(), use_tqdm=show_bar)
        seconds = time.perf_counter() - start
        for output in outputs:
            if output.error_code != 200:
                raise UsageError(str(output.error_msg))
        return seconds, outputs

    def _params(self) -> SamplingParams:
        from headrace import SamplingParams

        length = self.args.output_len
        return SamplingParams(max_tokens=length, ignore_eos=True, temperature=0.0)

    def _prompt(self) -> list[int]:
        size = self.llm.model_info.vocab_size
        return [self._random.randrange(size) for _ in range(self.args.input_len)]


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def _print_report(report: dict[str, Any]) -> None:
    throughput, latency = report["throughput"], report["latency"]
    print(
        f"{report['family']}, {report['num_parameters']:,} parameters, {report['dtype']}, "
        f"{report['isa']}, {report['num_threads']} threads; "
        f"loaded in {report['load_seconds']:.2f} s"
    )
    print(
        f"throughput  {throughput['num_prompts']} prompts of {report['input_len']} tokens, "
        f"{report['output_len']} tokens each: {throughput['seconds']:.2f} s, "
        f"input {throughput['input_tokens_per_second']:.1f} tok/s, "
        f"output {throughput['output_tokens_per_second']:.1f} tok/s"
    )
    print(f"latency     one prompt at a time, {latency['iterations']} times (min / median / max)")
    for name, unit, scale in (
        ("seconds", "s", 1.0),
        ("time_to_first_token", "ms", 1e3),
        ("time_per_output_token", "ms", 1e3),
    ):
        spread = latency[name]
        if spread is not None:
            numbers = " / ".join(f"{spread[key] * scale:.2f}" for key in ("min", "median", "max"))
            print(f"            {name.replace('_', ' '):<22} {numbers} {unit}")
