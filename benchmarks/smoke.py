"""Runs every benchmark once on a tiny shape, so that none rots. No figure is judged."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

RUNS = [
    ["lora.py", "--prompt", "16", "--output", "4", "--requests", "4", "--rank", "4"],
    ["latency.py", "--prompt", "32", "--output", "8"],
    ["throughput.py", "--requests", "4", "--prompt", "16", "--output", "8", "--mixed"],
    ["startup.py", "--packed"],
    ["wakeup.py", "--output", "16", "--requests", "1", "4"],
    ["guided.py", "--requests", "4", "--output", "8"],
    ["neighbour.py", "--prompt", "16", "--output", "8"],
    ["speculative.py", "--requests", "2", "--output", "16"],
    ["swap.py", "--prompt", "200"],
    ["embedding.py", "--texts", "4", "--length", "16"],
    ["media.py"],
    ["encoding.py", "--rows", "16"],
    ["encoding.py", "--rows", "16", "--quantization", "wint8"],
    ["serving.py", "--streams", "4", "--prompt", "8", "--output", "8"],
]
# On its own side: other engines are not installed.
for work, weights in (("decode", "int8"), ("mixed-64", "bf16"), ("start", "bf16")):
    few = ["--tiny", "--probe-gib", "0.05", "--results", os.devnull]
    RUNS.append(["compare/compare.py", "--work", work, "--weights", weights, *few])
RUNS.append(["compare/compare.py", "--work", "image", *few, "--shape", "smoke-vl"])
RUNS.append(["compare/compare.py", "--work", "image", "--fresh", *few, "--shape", "smoke-vl"])


def main() -> None:
    for name, *flags in RUNS:
        command = [sys.executable, str(HERE / name), "--shape", "smoke", "--repeats", "1", *flags]
        print("+", name, *flags, flush=True)
        subprocess.run(command, check=True)
    command = [sys.executable, str(HERE / "large.py"), "--shape", "smoke-moe", "--tokens", "4"]
    print("+", *command[1:], flush=True)
    subprocess.run(command, check=True)
    model = HERE.parent / "examples/tiny_model/checkpoint"
    command = [sys.executable, str(HERE / "text.py"), str(model), "--repeats", "1"]
    print("+", *command[1:], flush=True)
    subprocess.run(command, check=True)
    command = [sys.executable, str(HERE / "quality.py"), "{}", "--dialogues", "5"]
    print("+", *command[1:], flush=True)
    subprocess.run(command, check=True)
    print(f"{len(RUNS) + 3} passed, 0 failed")


if __name__ == "__main__":
    main()
