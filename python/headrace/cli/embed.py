"""headrace embed: texts to embeddings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.cli.options import (
    add_engine_options,
    add_model_option,
    load_model,
    refuse_folder,
    tell_of_toy,
)
from headrace.cli.usage import UsageError

if TYPE_CHECKING:
    from headrace import LLM

_AT_ONCE = 256  # texts in the engine


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "embed",
        help="make embeddings of texts",
        description="Prints a JSON object for each text, in their order: its index and embedding. "
        "Without a text, each line of standard input is one.",
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    add_model_option(parser, positional=False)
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help='lines of the input are JSON: a string, or an object with "text"; the other fields '
        "of an object come back with its embedding",
    )
    parser.add_argument("--prompt-name", help="put this prompt of the model before each text")
    parser.add_argument("--prompt", help="put this text before each text")
    parser.add_argument("--dimensions", type=int, metavar="N", help="keep the first N numbers")
    parser.add_argument(
        "--no-normalize", action="store_true", help="leave the length of embeddings as it is"
    )
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.texts and args.jsonl:
        raise UsageError("--jsonl is for standard input: leave the texts out")
    refuse_folder(args.texts)
    tell_of_toy(args)
    records = _given(args.texts) if args.texts else _standard_input(args.jsonl)
    failed = False
    count = 0
    with load_model(args) as llm:
        while batch := list(islice(records, _AT_ONCE)):
            failed |= _embed(llm, args, batch, count)
            count += len(batch)
    if not count:
        raise UsageError("there is no text: pass one, or write it to standard input")
    return 1 if failed else 0


def _embed(
    llm: LLM, args: argparse.Namespace, batch: list[tuple[str, dict[str, Any]]], first: int
) -> bool:
    """Prints a line for each. Whether one has failed."""
    outputs = llm.embed(
        [text for text, _ in batch],
        prompt_name=args.prompt_name,
        prompt=args.prompt,
        dimensions=args.dimensions,
        normalize=False if args.no_normalize else None,
        use_tqdm=False,
    )
    failed = False
    for place, ((_, others), output) in enumerate(zip(batch, outputs, strict=True), first):
        record = {**others, "index": place, "embedding": output.outputs.embedding}
        record["prompt_tokens"] = len(output.prompt_token_ids)
        if output.error_code != 200:
            failed = True
            record["error"] = output.error_msg
            print(f"headrace: error: text {place}: {output.error_msg}", file=sys.stderr)
        print(json.dumps(record, ensure_ascii=False))
    return failed


def _given(texts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((text, {}) for text in texts)


def _standard_input(jsonl: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Texts and what else their records say. Raises UsageError for a line that is none."""
    for number, line in enumerate(sys.stdin, 1):
        text = line.rstrip("\r\n")
        if not text:
            continue
        yield _record(text, number) if jsonl else (text, {})


def _record(line: str, number: int) -> tuple[str, dict[str, Any]]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"line {number} is not JSON: {error}") from error
    if isinstance(value, str):
        return value, {}
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return value["text"], value
    raise UsageError(f'line {number} must be a string, or an object with "text", a string')
