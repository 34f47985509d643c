"""`headrace serve` beside llama-cpp-python's server: the same weights, the same requests.

    python benchmarks/compare/server.py --model FOLDER --gguf FILE --llama-cpp PYTHON

FOLDER and FILE hold one model, as tests/real_weights/prepare.py makes them of SmolLM2-135M.
PYTHON is an interpreter that has llama-cpp-python[server]. Each round sends `--streams` requests at
the same time to one server, then to the other: greedy, streamed, `--output` tokens each (the end of
text is ruled out by a bias). Prints requests per second, tokens per second and the median time to
the first piece, of the median round, and the ratio."""

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field

WORDS = ("river", "stone", "cloud", "lamp", "garden", "winter", "copper", "market", "letter")


@dataclass
class Server:
    name: str
    port: int
    process: subprocess.Popen[bytes]
    seconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(name: str, command: Sequence[str], port: int) -> Server:
    quiet = subprocess.DEVNULL
    server = Server(name, port, subprocess.Popen(command, stdout=quiet, stderr=quiet))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).read()
            return server
        except OSError:
            time.sleep(0.2)
    server.process.kill()
    raise SystemExit(f"{name} has not started: {' '.join(command)}")


async def request(port: int, prompt: str, output: int, end: int) -> float:
    """Seconds to the first piece of text."""
    body = {"model": "m", "prompt": prompt, "max_tokens": output, "temperature": 0, "stream": True}
    data = json.dumps({**body, "logit_bias": {str(end): -100}}).encode()
    began, first = time.perf_counter(), 0.0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    )
    answer = b""
    while piece := await reader.read(1 << 16):
        answer += piece
        if not first and b"data: " in answer:
            first = time.perf_counter() - began
    writer.close()
    if b"data: [DONE]" not in answer or b'"length"' not in answer:
        raise SystemExit(answer[-500:].decode(errors="replace"))
    return first


async def measure(server: Server, prompts: list[str], args: argparse.Namespace) -> None:
    began = time.perf_counter()
    server.first += await asyncio.gather(
        *(request(server.port, prompt, args.output, args.end) for prompt in prompts)
    )
    server.seconds.append(time.perf_counter() - began)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder that headrace serves")
    parser.add_argument("--gguf", required=True, help="the same weights for llama.cpp")
    parser.add_argument("--llama-cpp", required=True, metavar="PYTHON")
    parser.add_argument("--quantization", default="wint4", help="of headrace's weights")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--end", type=int, default=2, help="id of the end of text")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    ours, theirs = free_port(), free_port()
    threads = str(args.threads)
    commands = {
        "headrace": [sys.executable, "-m", "headrace", "serve", f"m={args.model}", "--port",
                     str(ours), "--threads", threads, "--quantization", args.quantization,
                     "--max-num-seqs", str(args.streams), "--max-model-len", "1024"],
        "llama_cpp": [args.llama_cpp, "-m", "llama_cpp.server", "--model", args.gguf, "--port",
                      str(theirs), "--n_threads", threads, "--n_threads_batch", threads,
                      "--n_ctx", "1024", "--verbose", "False", "--interrupt_requests", "False"],
    }  # fmt: skip
    ports = {"headrace": ours, "llama_cpp": theirs}
    servers: list[Server] = []
    try:
        servers += [start(name, command, ports[name]) for name, command in commands.items()]
        for run in range(args.repeats + 1):  # the first warms up
            words = [WORDS[(run + i) % len(WORDS)] for i in range(48)]
            prompts = [f"Story {run}.{i}: {' '.join(words)}" for i in range(args.streams)]
            for server in servers:
                asyncio.run(measure(server, prompts, args))
                if not run:
                    server.seconds.clear()
                    server.first.clear()
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait(60)
    rates = {s.name: args.streams / statistics.median(s.seconds) for s in servers}
    figures = {f"{s.name}_first_s": round(statistics.median(s.first), 3) for s in servers}
    figures |= {f"{name}_requests_s": round(rate, 2) for name, rate in rates.items()}
    figures["ratio"] = round(rates["headrace"] / rates["llama_cpp"], 2)
    print(json.dumps({"streams": args.streams, "output": args.output, **figures}))


if __name__ == "__main__":
    main()
