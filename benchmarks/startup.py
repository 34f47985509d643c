"""From process start to the first token, and the cost of `import headrace`, in fresh processes.

python benchmarks/startup.py --shape ernie-4.5-0.3b"""

import subprocess
import sys
import time

import common

CHILD = """
import sys
from headrace import LLM, SamplingParams
llm = LLM(sys.argv[1], num_threads=int(sys.argv[2]), max_model_len=1024)
params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
for _ in llm.generate([5, 6, 7, 8], params, use_tqdm=False, stream=True):
    print("first", flush=True)
    break
llm.close()
"""


def seconds_to_first_line(command: list[str]) -> float:
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        seconds = time.perf_counter() - start
        child.stdout.read()
    if child.returncode != 0 or not line:
        raise SystemExit(f"{command[0]} failed with {child.returncode}")
    return seconds


def main() -> None:
    args = common.arguments(__doc__).parse_args()
    folder, _ = common.checkpoint(args)
    bare, imports, tokens = [], [], []
    for repeat in range(args.repeats + 1):
        python = [sys.executable, "-c"]
        a = seconds_to_first_line([*python, "print('up', flush=True)"])
        b = seconds_to_first_line([*python, "import headrace; print('up', flush=True)"])
        c = seconds_to_first_line([*python, CHILD, str(folder), str(args.threads)])
        if repeat > 0:  # the first warms the file cache
            bare.append(a)
            imports.append(b - a)
            tokens.append(c)
    common.report(
        shape=args.shape,
        python_s=round(common.median(bare), 3),
        import_s=round(common.median(imports), 3),
        first_token_s=round(common.median(tokens), 3),
    )


if __name__ == "__main__":
    main()
