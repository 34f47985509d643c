"""What HTTP costs: streams of `headrace serve` against the same requests through AsyncLLM.

    python benchmarks/serving.py --shape qwen2-0.5b --streams 32 --output 128

Both stream greedily, with as many tokens for each request; the server runs in a process of its own,
and its client here reads raw bytes. Runs alternate. "overhead" is the share of tokens per second
that is lost, of the medians. "cpu_overhead" is how much more CPU time the server's process takes
than AsyncLLM's for the same tokens: with --threads 1, where no thread spins, a machine that others
use, too, changes little of it."""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
from headrace import AsyncLLM, SamplingParams


async def by_engine(llm: AsyncLLM, prompts: list[list[int]], output: int) -> list[float]:
    """Seconds to the first token of each request."""

    async def one(prompt: list[int]) -> float:
        start, first = time.perf_counter(), 0.0
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        async for _ in llm.generate(prompt, params):
            first = first or time.perf_counter() - start
        return first

    return await asyncio.gather(*map(one, prompts))


async def by_server(port: int, prompts: list[list[int]], output: int) -> list[float]:
    async def one(prompt: list[int]) -> float:
        body = {"prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True}
        body["return_token_ids"] = True  # a piece for each update: random ids may have no text
        data = json.dumps({**body, "stream": True}).encode()
        start, first = time.perf_counter(), 0.0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        answer = b""
        while piece := await reader.read(1 << 16):
            answer += piece
            if not first and b"data: " in answer:
                first = time.perf_counter() - start
        writer.close()
        if b"data: [DONE]" not in answer:
            raise SystemExit(answer[-500:].decode(errors="replace"))
        return first

    return await asyncio.gather(*map(one, prompts))


def cpu_seconds(process: int) -> float:
    """What a process has used so far, its threads included."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_server(folder: Path, threads: int, streams: int) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "headrace", "serve", f"m={folder}", "--port", "0"]
    command += ["--max-model-len", "2048", "--max-num-seqs", str(streams)]
    command += ["--disable-access-log", "--gpu-memory-utilization", "0.3"]
    command += ["--threads", str(threads)] if threads else []
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r":(\d+)$", line.strip()):
            return server, int(found[1])
    raise SystemExit("the server has not started")


async def measure(args: argparse.Namespace) -> None:
    folder, _ = common.checkpoint(args)
    names = ("engine", "server")
    rates: dict[str, list[float]] = {name: [] for name in names}
    first: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    server, port = start_server(folder, args.threads, args.streams)
    options: dict[str, Any] = {
        "max_model_len": 2048,
        "max_num_seqs": args.streams,
        "num_threads": args.threads,
    }
    try:
        async with AsyncLLM.load(str(folder), gpu_memory_utilization=0.3, **options) as llm:
            for run in range(args.repeats + 1):  # the first warms up
                low = 3 + run * args.streams  # no prefix is in the cache
                prompts = [[low + i, *range(3, 2 + args.prompt)] for i in range(args.streams)]
                for name in names:
                    start = time.perf_counter()
                    process = os.getpid() if name == "engine" else server.pid
                    used = cpu_seconds(process)
                    if name == "engine":
                        times = await by_engine(llm, prompts, args.output)
                    else:
                        times = await by_server(port, prompts, args.output)
                    seconds = time.perf_counter() - start
                    if run:
                        rates[name].append(args.streams * args.output / seconds)
                        first[name] += times
                        cpu[name].append(cpu_seconds(process) - used)
    finally:
        server.terminate()
        server.wait(60)
    figures = {f"{name}_tok_s": round(common.median(rates[name]), 1) for name in names}
    figures |= {f"{name}_first_ms": round(common.median(first[name]) * 1e3, 1) for name in names}
    figures |= {f"{name}_cpu_s": round(common.median(cpu[name]), 2) for name in names}
    more = figures["server_cpu_s"] / max(figures["engine_cpu_s"], 0.01) - 1
    lost = 1 - figures["server_tok_s"] / figures["engine_tok_s"]
    common.report(
        streams=args.streams,
        output=args.output,
        **figures,
        overhead=round(lost, 4),
        cpu_overhead=round(more, 4),
    )


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=128)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
