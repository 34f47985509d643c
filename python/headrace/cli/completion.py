"""headrace completion: what a shell needs to complete the command's words."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# The parsers of the commands, by their names.
Commands = dict[str, argparse.ArgumentParser]

_BASH = """\
_headrace() {{
  local words
  case "${{COMP_WORDS[1]}}" in
{cases}
    *) words="" ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; fi
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _headrace headrace
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="complete this command in a shell",
        description="Prints a script for a shell: for bash, put "
        '`eval "$(headrace completion bash)"` into ~/.bashrc; for zsh, the same with zsh into '
        "~/.zshrc, after compinit; for fish, `headrace completion fish | source` into config.fish.",
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS))
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(run=lambda args: _run(args, commands.choices))


def _run(args: argparse.Namespace, commands: Commands) -> int:
    print(_SCRIPTS[args.shell](commands), end="")
    return 0


def _bash(commands: Commands) -> str:
    cases = "\n".join(
        f'    {name}) words="{" ".join(_flags(parser))}" ;;' for name, parser in commands.items()
    )
    return _BASH.format(cases=cases, commands=" ".join(commands))


def _zsh(commands: Commands) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(commands)


def _fish(commands: Commands) -> str:
    names = " ".join(commands)
    lines = [f"complete -c headrace -n 'not __fish_seen_subcommand_from {names}' -a '{names}'"]
    for name, parser in commands.items():
        lines += [
            f"complete -c headrace -n '__fish_seen_subcommand_from {name}' -l {flag[2:]}"
            for flag in _flags(parser)
        ]
    return "\n".join(lines) + "\n"


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [
        flag
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--")
    ]


_SCRIPTS: dict[str, Callable[[Commands], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
