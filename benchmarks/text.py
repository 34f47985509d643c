"""Tokenizing, beside the `tokenizers` package in the same run, and chat templates, beside jinja2.

    python benchmarks/text.py FOLDER... [--repeats 5]

Each folder holds a tokenizer.json. For texts in English, of code and in Chinese: MB/s of `encode`
of one thread, with an empty cache of words and with a full one, and how many times as fast as the
package's `encode` and `encode_batch_fast` that is. Then the milliseconds that loading takes. For
chat templates in the style of model families: microseconds of `Tokenizer.apply_chat_template`, the
first time and later, and the same with jinja2 in this process. Times are the process's CPU time, so
that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import itertools
import os
import runpy
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers

from headrace import _core
from headrace.text.templates.sandbox import render as render_with_jinja2
from headrace.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = 8000  # characters
RENDERINGS = 50  # in one measurement
CHINESE = (
    "人工智能是研究、开发用于模拟、延伸和扩展人的智能的理论、方法、技术及应用系统的一门新的技术科学。"
    "它企图了解智能的实质，并生产出一种新的能以与人类智能相似的方式做出反应的智能机器。"
    "今天天气很好，我们去公园散步，看到许多孩子在草地上放风筝。老师说：学而时习之，不亦说乎？"
    "中国有五千年的历史，长江和黄河是两条最长的河流，北京是首都，上海是最大的城市。"
)


def texts() -> dict[str, list[str]]:
    english = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/*.md")))
    code = "".join(
        path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("python/headrace/**/*.py"))
    )
    documents = {
        "English": [english[i : i + DOCUMENT] for i in range(0, 40 * DOCUMENT, DOCUMENT)],
        "code": [code[i : i + DOCUMENT] for i in range(0, 40 * DOCUMENT, DOCUMENT)],
        # The same sentences from another place each time.
        "Chinese": [
            "".join(CHINESE[(i * 7 + j * 13) % len(CHINESE) :] for j in range(DOCUMENT // 100))
            for i in range(10)
        ],
    }
    return {name: [text for text in some if text] for name, some in documents.items()}


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """The best of some calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return max(min(times), 1e-9)


def each(call: Callable[[str], Any], some: list[str]) -> None:
    for text in some:
        call(text)


def measure(folder: Path, repeats: int) -> None:
    file = str(folder / "tokenizer.json")
    own = _core.TextTokenizer(str(folder))
    package = tokenizers.Tokenizer.from_file(file)
    print(folder)
    for name, some in texts().items():
        size = sum(len(text.encode()) for text in some) / 1e6
        fresh = _core.TextTokenizer(str(folder))
        cold = seconds(partial(each, fresh.encode, some), 1)
        warm = seconds(partial(each, own.encode, some), repeats)
        one = seconds(partial(each, lambda text: package.encode(text).ids, some), repeats)
        many = seconds(partial(package.encode_batch_fast, some), repeats)
        print(
            f"  {name:8} {size / cold:7.1f} MB/s cold {size / warm:7.1f} warm "
            f"{one / warm:6.1f} x encode {many / warm:6.1f} x encode_batch_fast"
        )
    load = seconds(lambda: _core.TextTokenizer(str(folder)), repeats)
    theirs = seconds(lambda: tokenizers.Tokenizer.from_file(file), max(repeats // 2, 1))
    print(f"  load     {load * 1e3:7.1f} ms {theirs / load:22.1f} x as fast as the package")


numbers = itertools.count()  # so that each template is a new one


def each_render(render: Callable[[str], Any], template: str, repeats: int) -> tuple[float, float]:
    """Microseconds of the first rendering of a template, and of later ones."""
    first = seconds(lambda: render(f"{template}{{# {next(numbers)} #}}"), repeats)
    render(template)
    later = seconds(lambda: [render(template) for _ in range(RENDERINGS)], repeats) / RENDERINGS
    return first * 1e6, later * 1e6


def measure_templates(folder: Path, repeats: int) -> None:
    cases = runpy.run_path(str(ROOT / "tests/python/text/cpp/chat_templates.py"))
    tokenizer = Tokenizer.from_pretrained(folder)
    print("chat templates, with tools: us the first time, later; jinja2's")
    for family in ("qwen", "llama", "harmony"):
        for turns in (1, 20):
            question = {"role": "user", "content": "How is the weather in Paris? " * 4}
            answer = {"role": "assistant", "content": "It is sunny, 25 degrees. " * 8}
            variables = {"messages": [question, answer] * turns, "tools": cases["TOOLS"]}
            own = each_render(
                partial(apply_template, tokenizer, variables), cases["FAMILIES"][family], repeats
            )
            theirs = each_render(
                partial(render_with_jinja2, variables={**variables, "add_generation_prompt": True}),
                cases["FAMILIES"][family],
                repeats,
            )
            print(
                f"  {family:8} {2 * turns:3} messages {own[0]:8.0f} {own[1]:8.1f} "
                f"{theirs[0]:10.0f} {theirs[1]:8.1f}"
            )


def apply_template(tokenizer: Tokenizer, variables: dict[str, Any], template: str) -> str:
    text: str = tokenizer.apply_chat_template(
        variables["messages"], variables["tools"], template, tokenize=False
    )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    for folder in args.folders:
        measure(folder, args.repeats)
    measure_templates(args.folders[0], args.repeats)


if __name__ == "__main__":
    main()
