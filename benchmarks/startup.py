"""From process start to the first token, and the cost of `import headrace`, in fresh processes.

python benchmarks/startup.py --shape ernie-4.5-0.3b [--packed]

--packed: also from a packed file, mapped and copied. Loading alone is reported beside each."""

import subprocess
import sys
import time
from pathlib import Path

import common

CHILD = """
import sys
from headrace import LLM, SamplingParams
packed = {"packed_weights": sys.argv[3], "packed_copy": sys.argv[4] == "copy"}
llm = LLM(sys.argv[1], num_threads=int(sys.argv[2]), max_model_len=1024,
          **(packed if sys.argv[3] else {}))
params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
for _ in llm.generate([5, 6, 7, 8], params, use_tqdm=False, stream=True):
    print("first", llm.model_info.load_seconds, flush=True)
    break
llm.close()
"""


def seconds_to_first_line(command: list[str]) -> tuple[float, list[str]]:
    """And the words of that line."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        seconds = time.perf_counter() - start
        child.stdout.read()
    if child.returncode != 0 or not line:
        raise SystemExit(f"{command[0]} failed with {child.returncode}")
    return seconds, line.split()


def pack(folder: Path) -> Path:
    from headrace import packed

    file = folder / "benchmark.headrace"
    packed.pack(folder, file, skip_if_current=True)
    return file


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--packed", action="store_true", help="also start from a packed file")
    args = parser.parse_args()
    folder, _ = common.checkpoint(args)
    kinds = {"": ["", ""]}
    if args.packed:
        file = str(pack(folder))
        kinds |= {"mapped_": [file, "map"], "copied_": [file, "copy"]}
    bare, imports = [], []
    tokens: dict[str, list[float]] = {kind: [] for kind in kinds}
    loads: dict[str, list[float]] = {kind: [] for kind in kinds}
    for repeat in range(args.repeats + 1):
        python = [sys.executable, "-c"]
        a, _ = seconds_to_first_line([*python, "print('up', flush=True)"])
        b, _ = seconds_to_first_line([*python, "import headrace; print('up', flush=True)"])
        child = [*python, CHILD, str(folder), str(args.threads)]
        starts = {kind: seconds_to_first_line([*child, *how]) for kind, how in kinds.items()}
        if repeat > 0:  # the first warms the file cache
            bare.append(a)
            imports.append(b - a)
            for kind, (seconds, words) in starts.items():
                tokens[kind].append(seconds)
                loads[kind].append(float(words[1]))
    common.report(
        shape=args.shape,
        python_s=round(common.median(bare), 3),
        import_s=round(common.median(imports), 3),
        **{f"{kind}first_token_s": round(common.median(tokens[kind]), 3) for kind in kinds},
        **{f"{kind}load_s": round(common.median(loads[kind]), 3) for kind in kinds},
    )


if __name__ == "__main__":
    main()
