"""headrace batch: a file of requests in, a file of results out."""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.batch_ray import ray_answerer
from headrace.cli.options import (
    SAMPLING_FIELDS,
    add_engine_options,
    add_model_option,
    add_sampling_options,
    engine_arguments,
    model_path,
    tell_of_toy,
)
from headrace.cli.usage import UsageError

if TYPE_CHECKING:
    from headrace.batch.job import Counts
    from headrace.batch.progress import Progress
    from headrace.batch.results import Results
    from headrace.batch.rows import Source

_DEFAULT_WINDOW = 128


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "batch",
        help="answer a file of requests",
        description="Answers each row of a file: lines of OpenAI's batch format, lines with "
        '"prompt" or "messages", or a CSV or Parquet table with such columns. The same command '
        "again goes on where it was.",
    )
    parser.add_argument("input", help="JSON lines, or a .csv or .parquet file")
    parser.add_argument("output", help="the results, as JSON lines")
    add_model_option(parser)
    parser.add_argument(
        "--errors", metavar="FILE", help="rows that failed; default: OUTPUT.errors.jsonl"
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUTPUT and the errors")
    parser.add_argument(
        "--window", type=int, metavar="N", help=f"requests at once; default {_DEFAULT_WINDOW}"
    )
    parser.add_argument(
        "--served-model-name",
        action="append",
        metavar="NAME",
        help="what the requests call the model; repeatable; the first is what the results call it",
    )
    group = parser.add_argument_group("on a Ray cluster (needs headrace[ray])")
    group.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="answer on a cluster: that of ADDRESS, else one that runs here, else a new local one",
    )
    group.add_argument(
        "--ray-workers", type=int, metavar="N", help="engines; default: as many as there is room"
    )
    group = parser.add_argument_group("columns of a table")
    for field in ("custom_id", "prompt", "messages"):
        flag = "--id-column" if field == "custom_id" else f"--{field}-column"
        group.add_argument(flag, dest=f"{field}_column", default=field, metavar="NAME")
    add_sampling_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from headrace.batch.progress import Progress
    from headrace.batch.results import Results
    from headrace.batch.rows import MAX_ROW_BYTES

    csv.field_size_limit(MAX_ROW_BYTES)
    window = _DEFAULT_WINDOW if args.window is None else args.window
    if not 1 <= window <= 65536:
        raise UsageError(f"--window must be from 1 to 65536, got {args.window}")
    if args.ray_workers is not None and args.ray is None:
        raise UsageError("--ray-workers needs --ray")
    defaults = _defaults(args)
    source = _source(args)
    output, errors = _paths(args, source.path)
    tell_of_toy(args)
    progress = Progress(source.units, sys.stderr.isatty())
    with Results(output, errors, overwrite=args.force) as results:
        try:
            counts = _answer(args, source, results, window, defaults, progress)
        finally:
            progress.close()
        failed = results.has_errors
    print(
        f"headrace: {counts.completed} rows answered, {counts.failed} failed, {counts.skipped} "
        f"done before; {counts.prompt_tokens} prompt and {counts.output_tokens} output tokens",
        file=sys.stderr,
    )
    if failed:
        print(f"headrace: see {errors} for what has failed", file=sys.stderr)
    return 1 if failed else 0


def _defaults(args: argparse.Namespace) -> dict[str, Any]:
    """The sampling options, as the fields that rows have which don't say otherwise."""
    from headrace import SamplingParams

    given = {name: getattr(args, name) for name in (*SAMPLING_FIELDS, "stop")}
    given["ignore_eos"] = args.ignore_eos or None
    defaults = {name: value for name, value in given.items() if value is not None}
    try:
        SamplingParams(**defaults)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return defaults


def _source(args: argparse.Namespace) -> Source:
    from headrace.batch.rows import Columns, Source

    columns = Columns(args.custom_id_column, args.prompt_column, args.messages_column)
    try:
        return Source(Path(args.input), columns)
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(str(error)) from error


def _paths(args: argparse.Namespace, source: Path) -> tuple[Path, Path]:
    output = Path(args.output)
    errors = Path(args.errors) if args.errors else output.with_name(output.name + ".errors.jsonl")
    paths = [path.resolve() for path in (source, output, errors)]
    if len(set(paths)) < len(paths) or any(
        path.exists() and path.samefile(source) for path in paths[1:]
    ):
        raise UsageError("the input, the output and the errors must be different files")
    return output, errors


def _answer(
    args: argparse.Namespace,
    source: Source,
    results: Results,
    window: int,
    defaults: dict[str, Any],
    progress: Progress,
) -> Counts:
    from headrace.batch.answers import LocalAnswerer
    from headrace.batch.job import BatchJob
    from headrace.batch.local_engine import LocalEngine
    from headrace.llm.async_llm import AsyncLLM

    async def answer() -> Counts:
        if args.ray is not None:
            with ray_answerer(args, options, _names(args), window) as answerer:
                return await BatchJob(source, results, answerer, window, defaults).run(progress)
        async with AsyncLLM.load(model_path(args), **options) as llm:
            local = LocalAnswerer(LocalEngine(llm), _names(args))
            return await BatchJob(source, results, local, window, defaults).run(progress)

    options = engine_arguments(args, enable_logprob=True)
    return asyncio.run(answer())


def _names(args: argparse.Namespace) -> list[str]:
    """What rows may call the model."""
    path = model_path(args)
    return args.served_model_name or [Path(path).name or path, path]
