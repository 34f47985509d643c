"""The `headrace` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from headrace.cli import batch, bench, cache, chat, completion, embed, generate, info, pack, serve
from headrace.cli.logs import log_to_stderr
from headrace.cli.usage import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line; its exit status: 0, 1 for a failure, 2 for wrong usage."""
    parser = _parser()
    args = parser.parse_args(argv)
    if not hasattr(args, "run"):
        parser.print_help(sys.stderr)
        return 2
    try:
        with log_to_stderr(getattr(args, "log_times", False)):
            status: int = args.run(args)
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone; keep the interpreter's own flush at exit from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if args.debug:
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"headrace: error: {message}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


class _CommandParser(argparse.ArgumentParser):
    """Options may stand between words: `pack MODEL --dtype float32 OUT`."""

    _within = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        given = sys.argv[1:] if args is None else args
        if self._within or "--" in given:  # behind which all are words
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


class _Version(argparse.Action):
    """Prints the version; the engine is only imported when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from headrace import version

        print(f"headrace {version()}")
        parser.exit()


class _Folder(argparse.Action):
    """Prints where the installed package keeps something for C and C++ programs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from headrace import installed_files

        try:
            print(
                {
                    "includes": lambda: f"-I{installed_files.get_include()}",
                    "cmakedir": installed_files.get_cmake_dir,
                    "pkgconfigdir": installed_files.get_pkgconfig_dir,
                }[self.dest]()
            )
        except FileNotFoundError as error:
            parser.exit(1, f"headrace: error: {error}\n")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace", description="Run large language models on this machine."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    for flag, what in (
        ("--includes", "print the compiler flags for the C and C++ headers"),
        ("--cmakedir", "print the folder of the CMake package, for headrace_DIR"),
        ("--pkgconfigdir", "print the folder of headrace.pc, for PKG_CONFIG_PATH"),
    ):
        parser.add_argument(flag, action=_Folder, nargs=0, help=what)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", parser_class=_CommandParser
    )
    for command in (chat, generate, embed, serve, batch, bench, info, pack, cache, completion):
        command.add_parser(commands)
    return parser
