"""Tokenizing, beside the `tokenizers` package in the same run.

    python benchmarks/text.py FOLDER... [--repeats 5]

Each folder holds a tokenizer.json. For texts in English, of code and in Chinese: MB/s of `encode`
of one thread, with an empty cache of words and with a full one, and how many times as fast as the
package's `encode` and `encode_batch_fast` that is. Then the milliseconds that loading takes. Times
are the process's CPU time, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers

from headrace import _core

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = 8000  # characters
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    for folder in args.folders:
        measure(folder, args.repeats)


if __name__ == "__main__":
    main()
