"""Random chat templates and spoiled tokenizer and config files, under a limit on memory.

    python tests/fuzz/fuzz_text.py --templates 100000 --files 10000 [--megabytes 512] [--seed N]

Each must give a result or an error of ours: no abort, nothing that takes longer than --seconds of
processor time (of this process and those that render), no growth. What it finds is printed with the
seed that makes it again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.util
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("headrace") is None:
    sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "tests" / "python" / "support"))

import model_folders  # noqa: E402
from hostile_templates import random_template  # noqa: E402

from headrace import HeadraceError  # noqa: E402
from headrace.errors import TemplateError, TokenizerError  # noqa: E402
from headrace.native import describe_model  # noqa: E402
from headrace.options.generation_defaults import read_generation_defaults  # noqa: E402
from headrace.text.templates import process as template_process  # noqa: E402
from headrace.text.templates.chat_template import render_template  # noqa: E402
from headrace.text.tokenizer import Tokenizer  # noqa: E402

MESSAGES = [{"role": "user", "content": "hi 你好"}, {"role": "assistant", "content": "Hello"}]
VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 2**31, 2**40, 10**400, 1e308, "", "x", "\ud800", "\0", "x" * 100_000,
    [], [1], [[]], {}, {"type": "Fuse"}, {"content": "<x>"}, ["a"] * 1000,
]  # fmt: skip
GROWTH = 32 << 20  # bytes that caches may come to after the first tenth
EXPECTED = (TemplateError, TokenizerError, HeadraceError, ValueError)


def memory() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def processor_seconds() -> float:
    """Of this process, and of those that render templates with jinja2, the dead among them."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = sum(
        time.clock_gettime(~worker._process.pid << 3 | 2)  # as clock_getcpuclockid(3) makes it
        for worker in template_process._pool._idle
    )
    return time.process_time() + children.ru_utime + children.ru_stime + alive


class Run:
    """One kind of input, many times."""

    def __init__(self, name: str, seed: int, seconds: float) -> None:
        self.name, self.seed, self.seconds = name, seed, seconds
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        self.failures: list[str] = []

    def go(self, count: int, attempt: Callable[[random.Random], object]) -> None:
        settled = memory()
        for number in range(count):
            if number == max(count // 10, 1):
                settled = memory()
            self._once(number, attempt)
        grown = memory() - settled
        if grown > GROWTH:
            self.failures.append(f"{self.name} grew by {grown >> 20} MiB (seed {self.seed})")
        print(f"{self.name}: {dict(self.counts)}, slowest {self.slowest:.2f} s", flush=True)

    def _once(self, number: int, attempt: Callable[[random.Random], object]) -> None:
        label = f"{self.name} {number} of seed {self.seed}"
        start = processor_seconds()
        try:
            attempt(random.Random(f"{self.seed} {number}"))
            self.counts["good"] += 1
        except EXPECTED as error:
            self.counts[type(error).__name__] += 1
            if len(str(error)) > 1500:
                self.failures.append(f"{label}: a message of {len(str(error))} characters")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.failures.append(f"{label}: {type(error).__name__}: {str(error)[:200]}")
        took = processor_seconds() - start
        self.slowest = max(self.slowest, took)
        if took > self.seconds:
            self.failures.append(f"{label} took {took:.1f} s")


def render(rng: random.Random) -> None:
    assert isinstance(render_template(random_template(rng), {"messages": MESSAGES}), str)


class Files:
    """A model folder whose files are spoiled, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        model_folders.byte_level_folder(folder)
        (folder / "generation_config.json").write_text('{"temperature": 0.5, "top_k": 20}')
        (folder / "added_tokens.json").write_text('{"<a>": 600, "<b>": 601}')
        shipped = ROOT / "examples" / "tiny_model" / "checkpoint" / "config.json"
        (folder / "config.json").write_bytes(shipped.read_bytes())
        self.originals = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.originals["tokenizer.model"] = model_folders.sentencepiece_model()

    def attempt(self, rng: random.Random) -> None:
        name = rng.choice(sorted(self.originals))
        path = self.folder / name
        hidden = self.folder / "tokenizer.json"
        if name == "tokenizer.model":
            hidden.unlink()
        path.write_bytes(self._spoiled(name, rng))
        try:
            self._use(name)
        finally:
            path.write_bytes(self.originals[name])
            hidden.write_bytes(self.originals[hidden.name])

    def _spoiled(self, name: str, rng: random.Random) -> bytes:
        data = self.originals[name]
        if name.endswith(".json") and rng.random() < 0.7:
            value = json.loads(data)
            for _ in range(rng.randint(1, 3)):
                value = spoiled(value, rng)
            return json.dumps(value).encode()
        changed = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            place = rng.randrange(len(changed))
            changed[place : place + rng.choice([0, 1, 1, 9])] = rng.randbytes(rng.choice([0, 1, 4]))
        return bytes(changed[: rng.choice([len(changed), rng.randrange(len(changed))])])

    def _use(self, name: str) -> None:
        if name == "config.json":
            describe_model(self.folder)
        elif name == "generation_config.json":
            read_generation_defaults(self.folder)
        else:
            own = Tokenizer.from_pretrained(self.folder)
            ids = own.encode("hello 你好 <s>", add_special_tokens=True)
            own.decode(ids, skip_special_tokens=True)
            own.token_bytes()
            with contextlib.suppress(TemplateError):
                own.apply_chat_template(MESSAGES)


def spoiled(value: Any, rng: random.Random) -> Any:
    """One place of a JSON value removed or replaced."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.1:
        return copy.deepcopy(rng.choice(VALUES))
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    if rng.random() < 0.1:
        del value[key]
    else:
        value[key] = spoiled(value[key], rng)
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--templates", type=int, default=1000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # this program writes larger numbers than it reads
    limit = args.megabytes << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(f"seed {args.seed}", flush=True)
    templates = Run("template", args.seed, args.seconds)
    templates.go(args.templates, render)
    files = Run("file", args.seed, args.seconds)
    with tempfile.TemporaryDirectory() as name:
        files.go(args.files, Files(Path(name)).attempt)
    failures = [*templates.failures, *files.failures]
    print("\n".join(failures) or "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
