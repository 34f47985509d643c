"""The same work on Headrace and on other engines, each in a process of its own, interleaved.

    python benchmarks/compare/compare.py --shape qwen2-0.5b --weights int8 --work decode \\
        --python llama.cpp=/venv/bin/python --results results.jsonl
    python benchmarks/compare/compare.py --results results.jsonl --table

An engine is compared where a Python that has it is named (Headrace: this one). Each run measures
the machine's limits before and after every engine's turn and appends one line per engine: medians
of the repeats, and the share of the floor that floors.py derives, for every engine of Headrace's
bytes of a weight. headrace-packed is Headrace with packed weights (`headrace pack`). Models are
made when missing, which takes minutes: --prepare does that alone. OpenVINO needs optimum-intel for
it (--python openvino-convert=...), llama.cpp the gguf package.
Memory (of the host) and start-up are of a fresh process.

--work image: the time to the first token behind a picture of 448 x 448 that is given as an array,
and 64 tokens; image-large: 1092 x 1932. They need a vision shape; of one whose name ends in -tower
hardly more than the tower takes time. --fresh: a process for each turn, of which the second run
counts, where not all engines fit in memory at once.

--beside SHAPE: Headrace with a model of another shape takes its turns, too.

--device cuda: everybody on the first GPU, in bf16, all of them in its memory at once. Its limits
are what gpu_kernel_bench --limits says, which tests/gpu/run.sh builds (--gpu-limits "PROGRAM
--cublaslt LIBRARY" where the linker finds no cuBLASLt). llama-cpp-python must have been built with
CUDA; transformers compiles its steps."""

import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import floors  # noqa: E402
from engine_headrace import QUANTIZATION  # noqa: E402
from setup import BUDGETS  # noqa: E402
from worker import WITH_IMAGES  # noqa: E402

import common  # noqa: E402
import make_checkpoint  # noqa: E402
from headrace import packed  # noqa: E402

GPU_LIMITS = str(common.ROOT / "build/gpu/benchmarks/cuda/gpu_kernel_bench")
ON_GPU = ("headrace", "llama.cpp", "transformers")
MIXED = [(16 + 2 * (i * 37 % 64), 16 + 3 * (i * 29 % 33)) for i in range(64)]  # means: 79 and 63
# Requests of (prompt, output); which part of the run counts.
WORK = {
    "decode": ([(128, 33)], "decode"),
    "decode-8k": ([(8192, 17)], "decode"),
    "prefill": ([(512, 1)], "prefill"),
    "prefill-2k": ([(2048, 1)], "prefill"),
    "batch-8": ([(128, 64)] * 8, "whole"),
    "batch-16": ([(128, 64)] * 16, "whole"),
    "mixed-64": (MIXED, "whole"),
    "start": ([(4, 1)], "start"),
    "image": ([(64, 1)], "image"),
    "image-large": ([(64, 1)], "image"),
}
IMAGES = {"image": (448, 448), "image-large": (1092, 1932)}  # height, width


class Worker:
    """An engine's process (worker.py); `start_s` is the time to its first token."""

    def __init__(self, python: str, engine: str, model: Path, args, context: int, count: int):
        command = [python, str(HERE / "worker.py"), engine, str(model), args.weights]
        command += [str(args.threads), str(context), str(count), args.device]
        command += ["image" if args.work in IMAGES else "text"]
        begin = time.perf_counter()
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.answer()
        self.start_s = time.perf_counter() - begin

    def answer(self) -> dict:
        line = self._child.stdout.readline()
        if not line.startswith("{"):
            raise SystemExit(f"{self._child.args[2]} failed: {line}{self._child.stderr.read()}")
        return json.loads(line)

    def run(self, task: dict) -> dict:
        """`task`: a line of worker.py's."""
        print(json.dumps(task), file=self._child.stdin, flush=True)
        return self.answer()

    def end(self) -> int:
        """Returns its peak resident memory."""
        print(file=self._child.stdin, flush=True)
        peak = self.answer()["peak_rss"]
        self._child.communicate()
        return peak


def model_for(engine: str, weights: str, folder: Path, pythons: dict[str, str]) -> Path:
    if engine in ("headrace", "transformers"):
        return folder
    if engine == "headrace-packed":
        target = folder / f"packed-{weights}"
        packed.pack(folder, target, quantization=QUANTIZATION[weights], skip_if_current=True)
        return target
    if engine == "llama.cpp":
        file = folder / f"{weights}.gguf"
        if not file.exists():
            script = [pythons[engine], HERE / "gguf_file.py", folder, file, weights]
            subprocess.run(script, check=True)
        return file
    target = folder / f"openvino-{weights}"
    task, last = "text-generation-with-past", "openvino_model.xml"
    if (folder / "preprocessor_config.json").exists():
        task, last = "image-text-to-text", "openvino_vision_embeddings_model.xml"
    if not (target / last).exists():
        kind = {"bf16": ["fp16"], "int8": ["int8"], "int4": ["int4", "--group-size", "64"]}[weights]
        convert = [pythons["openvino-convert"], "-m", "optimum.commands.optimum_cli", "export"]
        convert += ["openvino", "--model", folder, "--task", task]
        subprocess.run([*convert, "--weight-format", *kind, target], check=True)
    return target


def measure_limits(args) -> common.Limits:
    if args.device == "cpu":
        return common.measure_limits(args.threads, args.probe_gib)
    return common.measure_gpu_limits(shlex.split(args.gpu_limits))


def floor_seconds(kind: str, requests: list, config: dict, args, limits) -> float:
    weights = args.weights
    if kind == "image":
        return floors.image_floor(config, weights, limits, image_size(args), requests[0][0])
    if kind == "whole":
        return floors.run_floor(config, weights, limits, requests, BUDGETS[args.device])
    prompt, output = requests[0]
    if kind == "prefill":
        need = floors.step_need(config, weights, prompt, [prompt], 1)
        return need.seconds(limits, weights)
    need = floors.step_need(config, weights, 1, [prompt + output // 2], 1)
    return need.seconds(limits, weights)


def measured(kind: str, requests: list, answer: dict) -> tuple[float, float]:
    """Seconds to hold against the floor, and tokens per second."""
    if kind in ("prefill", "image"):
        return answer["first_s"], requests[0][0] / answer["first_s"]
    if kind == "decode":
        later = requests[0][1] - 1
        each = max(answer["last_s"] - answer["first_s"], 1e-4) / later  # a tiny model's: at once
        return each, 1 / each
    return answer["last_s"], answer["tokens"] / answer["last_s"]


def image_size(args) -> tuple[int, int]:
    return (112, 112) if args.tiny else IMAGES[args.work]


def starts(args, start, lines: dict[str, dict]) -> None:
    for repeat in range(args.repeats + 1):
        for name, line in lines.items():
            worker = start(name)
            line["peak_mb"] = round(worker.end() / 1e6)
            if repeat > 0:  # the first warms the file cache
                line["start_s"].append(worker.start_s)


def runs(args, start, task: dict, lines: dict[str, dict], record) -> None:
    """Every engine's answers to `task` by turns, the first as a warm-up; `record` is called with
    its name, an answer and the limits before and after it."""
    workers = {} if args.fresh else {name: start(name) for name in lines}
    for repeat in range(args.repeats + (not args.fresh)):
        limits = None if args.fresh else measure_limits(args)
        for name, line in lines.items():
            worker = workers.get(name) or start(name)
            if args.fresh:
                worker.run(task)
                limits = measure_limits(args)
            answer, before = worker.run(task), limits
            limits = measure_limits(args)
            if args.fresh or repeat > 0:
                record(name, answer, (before, limits))
            if args.fresh:
                line["peak_mb"].append(round(worker.end() / 1e6))
    for name, worker in workers.items():
        lines[name]["peak_mb"] = round(worker.end() / 1e6)


@dataclass(frozen=True)
class Competitor:
    python: str
    model: Path
    shape: str


def competitors(args, folder: Path, pythons: dict[str, str]) -> dict[str, Competitor]:
    """By names, whose first words are the engines'. Makes the models that are missing."""
    out = {
        name: Competitor(python, model_for(name, args.weights, folder, pythons), args.shape)
        for name, python in pythons.items()
        if not name.endswith("-convert")
    }
    if args.beside:
        model = make_checkpoint.write(args.beside, folder.parent / args.beside)
        out[f"headrace {args.beside}"] = Competitor(sys.executable, model, args.beside)
    return out


def turns(args, folder: Path, pythons: dict[str, str]) -> None:
    requests, kind = WORK[args.work]
    if args.tiny:
        requests = [(max(4, p // 16), max(2, n // 8)) for p, n in requests[:4]]
    longest = max(prompt + output for prompt, output in requests) + 16
    task: dict = {"requests": requests}
    if kind == "image":
        height, width = image_size(args)
        task = {"image": [height, width], "text": requests[0][0]}
        longest += height * width // 28**2 + 64  # rows of the finest processor, and of rounding
    taking_part = competitors(args, folder, pythons)
    if args.prepare:
        return

    def start(name: str) -> Worker:
        one = taking_part[name]
        return Worker(one.python, name.split()[0], one.model, args, longest, len(requests))

    def record(name: str, answer: dict, limits: tuple) -> None:
        config, line = make_checkpoint.SHAPES[taking_part[name].shape], lines[name]
        seconds, rate = measured(kind, requests, answer)
        line["first_s" if kind == "image" else "tok_s"].append(seconds if kind == "image" else rate)
        for at in limits:
            line["share"].append(floor_seconds(kind, requests, config, args, at) / seconds)

    figures = ("share", "tok_s", "first_s", "start_s", "peak_mb")
    lines: dict[str, dict] = {name: {figure: [] for figure in figures} for name in taking_part}
    if kind == "start":
        starts(args, start, lines)
    else:
        runs(args, start, task, lines, record)
    with args.results.open("a") as out:
        for name, line in lines.items():
            medians = {
                key: round(statistics.median(values), 4) if isinstance(values, list) else values
                for key, values in line.items()
                if values
            }
            about = {"shape": taking_part[name].shape, "weights": args.weights, "work": args.work}
            about |= {"device": args.device, "engine": name.split()[0]}
            out.write(json.dumps(about | medians) + "\n")
            common.report(**about, **medians)


def table(results: Path) -> None:
    """The latest line of each shape, weights, work and engine."""
    latest: dict[tuple, dict] = {}
    for line in results.read_text().splitlines():
        row = json.loads(line)
        device = row.get("device", "cpu")
        shape = row["shape"] + ("" if device == "cpu" else f" on {device}")
        latest[shape, row["work"], row["weights"], row["engine"]] = row
    print("| shape | work | weights | engine | tok/s | of floor | first token | start "
          "| peak memory |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for (shape, work, weights, engine), row in sorted(latest.items()):
        rate = f"{row['tok_s']:.1f}" if "tok_s" in row else ""
        share = f"{row['share']:.0%}" if "share" in row else ""
        first = f"{row['first_s']:.2f} s" if "first_s" in row else ""
        start = f"{row['start_s']:.2f} s" if "start_s" in row else ""
        print(
            f"| {shape} | {work} | {weights} | {engine} | {rate} | {share} | {first} | {start} "
            f"| {row['peak_mb']:.0f} MB |"
        )


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--weights", choices=("bf16", "int8", "int4"), default="bf16")
    parser.add_argument("--work", choices=sorted(WORK), default="decode")
    parser.add_argument("--beside", choices=sorted(make_checkpoint.SHAPES), metavar="SHAPE")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PYTHON")
    parser.add_argument("--results", type=Path, default=Path("compare.jsonl"))
    parser.add_argument("--probe-gib", type=float, default=0.5)
    parser.add_argument("--fresh", action="store_true", help="a process for each turn")
    parser.add_argument("--prepare", action="store_true", help="only make the models")
    parser.add_argument("--tiny", action="store_true", help="a fraction of the work")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--device", choices=sorted(BUDGETS), default="cpu")
    parser.add_argument("--gpu-limits", default=GPU_LIMITS, metavar="COMMAND")
    args = parser.parse_args()
    if args.table:
        table(args.results)
        return
    pythons = {"headrace": sys.executable} | dict(item.split("=", 1) for item in args.python)
    if args.device != "cpu":
        if args.weights != "bf16":
            parser.error(f"--weights {args.weights} is for the CPU: on a GPU bf16 is compared")
        for name in pythons:
            if name not in ON_GPU:
                parser.error(f"{name} is compared on the CPU only: leave it or --device out")
    if args.work in IMAGES:
        if "vision_config" not in make_checkpoint.SHAPES[args.shape] or args.device != "cpu":
            parser.error(f"--work {args.work} needs a vision shape and --device cpu")
        for name in pythons:
            if name.removesuffix("-convert") not in WITH_IMAGES:
                parser.error(f"{name} is not compared with images: leave it out")
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    folder, _ = common.checkpoint(args)
    turns(args, folder, pythons)


if __name__ == "__main__":
    main()
