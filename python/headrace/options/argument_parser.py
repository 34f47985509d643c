"""EngineArgs as options of a script's command line, as in vLLM's and FastDeploy's scripts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

P = TypeVar("P", bound=argparse._ActionsContainer)
_TYPES: dict[str, Any] = {"int": int, "float": float}


class FlexibleArgumentParser(argparse.ArgumentParser):
    """An ArgumentParser that reads --max_model_len as --max-model-len."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args(list(map(_with_dashes, given)), namespace)


def _with_dashes(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, sign, value = argument.partition("=")
    return name.replace("_", "-") + sign + value


def add_engine_options(parser: P, engine_args: Any, others: dict[str, Any]) -> P:
    """An option for each field of EngineArgs, --max-model-len, with the field's default, and for
    each of `others`, by name and type, with the default None.

    Values of fields that aren't numbers, texts or flags are JSON.
    """
    group: Any = parser  # a group already, in some of vLLM's scripts
    if isinstance(parser, argparse.ArgumentParser):
        group = parser.add_argument_group("engine", "what headrace.LLM takes")
    for item in fields(engine_args):
        _add(group, item.name, str(item.type), item.default)
    for name, kind in others.items():
        _add(group, name, kind, None)
    return parser


def _add(group: Any, name: str, kind: str, default: Any) -> None:
    option = "--" + name.replace("_", "-")
    first = kind.partition(" | ")[0]
    if first == "bool":
        flag = argparse.BooleanOptionalAction
        group.add_argument(option, dest=name, action=flag, default=default)
        return
    read = _TYPES.get(first, str if first == "str" else _read_json)
    group.add_argument(option, dest=name, type=read, default=default, metavar="VALUE")


def _read_json(text: str) -> Any:
    """JSON, or a text that is none: the name of a quantization."""
    try:
        return json.loads(text)
    except ValueError:
        return text
