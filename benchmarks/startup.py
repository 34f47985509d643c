"""From process start to the first token, and the cost of `import headrace`, in fresh processes.

python benchmarks/startup.py --shape ernie-4.5-0.3b [--packed] [--device cuda]

--packed: also from a packed file, mapped and copied, and by packed_weights="auto": the first start,
which closes the model before it is in the cache, and the second. Loading alone is reported beside
each."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import common

CHILD = """
import os, sys, time
from headrace import LLM, SamplingParams
packed = {"packed_weights": sys.argv[4], "packed_copy": sys.argv[5] == "copy"}
llm = LLM(sys.argv[1], num_threads=int(sys.argv[2]), max_model_len=1024, device=sys.argv[3],
          **(packed if sys.argv[4] else {}))
params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
for _ in llm.generate([5, 6, 7, 8], params, use_tqdm=False, stream=True):
    print("first", llm.model_info.load_seconds, flush=True)
    break
while sys.argv[6:] and not any(name.endswith(".headrace") for name in os.listdir(sys.argv[6])):
    time.sleep(0.05)
llm.close()
"""


def seconds_to_first_line(command: list[str], cache: str = "") -> tuple[float, list[str]]:
    """And the words of that line."""
    start = time.perf_counter()
    environment = {**os.environ, "HEADRACE_CACHE": cache}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
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


def fill_cache(child: list[str], cache: Path) -> str:
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(mode=0o700)
    seconds_to_first_line([*child, "auto", "map", str(cache)], str(cache))
    return str(cache)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--packed", action="store_true", help="also start from a packed file")
    common.add_device(parser)
    args = parser.parse_args()
    if args.packed and args.device != "cpu":
        parser.error("packed files are for the CPU: leave --packed or --device out")
    folder, _ = common.checkpoint(args)
    child = [sys.executable, "-c", CHILD, str(folder), str(args.threads), args.device]
    kinds = {"": ["", ""]}
    caches: dict[str, str] = {}
    if args.packed:
        file = str(pack(folder))
        kinds |= {"mapped_": [file, "map"], "copied_": [file, "copy"]}
        kinds |= {"cache_first_": ["auto", "map"], "cache_second_": ["auto", "map"]}
        caches["cache_first_"] = str(folder / "empty-cache")
        caches["cache_second_"] = fill_cache(child, folder / "cache")
    bare, imports = [], []
    tokens: dict[str, list[float]] = {kind: [] for kind in kinds}
    loads: dict[str, list[float]] = {kind: [] for kind in kinds}
    for repeat in range(args.repeats + 1):
        python = [sys.executable, "-c"]
        a, _ = seconds_to_first_line([*python, "print('up', flush=True)"])
        b, _ = seconds_to_first_line([*python, "import headrace; print('up', flush=True)"])
        shutil.rmtree(folder / "empty-cache", ignore_errors=True)
        starts = {
            kind: seconds_to_first_line([*child, *how], caches.get(kind, ""))
            for kind, how in kinds.items()
        }
        if repeat > 0:  # the first warms the file cache
            bare.append(a)
            imports.append(b - a)
            for kind, (seconds, words) in starts.items():
                tokens[kind].append(seconds)
                loads[kind].append(float(words[1]))
    common.report(
        shape=args.shape,
        device=args.device,
        python_s=round(common.median(bare), 3),
        import_s=round(common.median(imports), 3),
        **{f"{kind}first_token_s": round(common.median(tokens[kind]), 3) for kind in kinds},
        **{f"{kind}load_s": round(common.median(loads[kind]), 3) for kind in kinds},
    )


if __name__ == "__main__":
    main()
