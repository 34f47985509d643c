"""Many streams with clients that leave, read slowly or ask nonsense: no answer lost, memory flat.

    python tests/soak/serving.py [--minutes 10] [--streams 256] [--seed N]

Runs `headrace serve` on the shipped model. Prints its seed, the counts and the server's growth."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

BAD = [b"{", b"[]", b'{"messages": 3}', b'{"messages": [], "n": -1}', b'{"prompt": "x"}']


def resident(pid: int) -> float:
    """MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


class Crowd:
    def __init__(self, port: int, seed: int, until: float) -> None:
        self._port = port
        self._random = random.Random(seed)
        self._until = until
        self.counts: Counter[str] = Counter()

    async def client(self) -> None:
        while time.monotonic() < self._until:
            kind = self._random.choices(("whole", "leaves", "slow", "bad"), (6, 3, 1, 1))[0]
            self.counts[kind] += 1
            try:
                await asyncio.wait_for(self._one(kind), 300)
            except (AssertionError, OSError, asyncio.TimeoutError) as error:
                self.counts[f"lost: {type(error).__name__} {error}"[:200]] += 1

    async def _one(self, kind: str) -> None:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": f"What is {self._random.random()} + 7?"}],
            "max_tokens": self._random.randint(1, 60),
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        data = self._random.choice(BAD) if kind == "bad" else json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
            )
            await writer.drain()
            if kind == "leaves":
                await reader.read(self._random.choice((1, 500, 2000)))
                return
            answer = b""
            while piece := await reader.read(200 if kind == "slow" else 1 << 16):
                answer += piece
                if kind == "slow":
                    await asyncio.sleep(0.02)
            self._check(kind, answer, body["max_tokens"])
        finally:
            writer.close()

    def _check(self, kind: str, answer: bytes, tokens: int) -> None:
        status = answer[9:12]
        if kind == "bad":
            assert status == b"400", answer[:300]
        elif status == b"429":
            self.counts["busy"] += 1
        else:
            assert status == b"200", answer[:300]
            assert b"data: [DONE]" in answer, answer[-300:]
            assert b'"completion_tokens":%d,' % tokens in answer, answer[-300:]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    args = parser.parse_args()
    print("seed", args.seed, flush=True)
    command = [sys.executable, "-m", "headrace", "serve", "--port", "0", "--max-model-len", "512"]
    command += ["--disable-access-log"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert server.stderr is not None
    found = next(filter(None, (re.search(r":(\d+)$", line.strip()) for line in server.stderr)))
    try:
        crowd = Crowd(int(found[1]), args.seed, time.monotonic() + args.minutes * 60)
        clients = [asyncio.create_task(crowd.client()) for _ in range(args.streams)]
        sizes = []
        for _ in range(5):
            await asyncio.sleep(args.minutes * 12)
            sizes.append(resident(server.pid))
        await asyncio.gather(*clients)
        grown = sizes[-1] - sizes[1]
    finally:
        server.terminate()
        code = server.wait(120)
    for name, count in sorted(crowd.counts.items()):
        print(name, count)
    lost = sum(count for name, count in crowd.counts.items() if name.startswith("lost"))
    print("resident MiB after each fifth of the time:", *(f"{size:.0f}" for size in sizes))
    print(f"{sum(crowd.counts.values()) - lost} passed, {lost} failed")
    return 1 if lost or code or grown > 64 else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
