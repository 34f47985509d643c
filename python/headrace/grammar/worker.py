"""What proof.py asks of its process: whether a grammar compiles, with limits of the system."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import llguidance  # noqa: F401 (now, and not with the first schema that needs it)

from headrace import _core
from headrace.grammar.kinds import KINDS
from headrace.grammar.library import library
from headrace.grammar.rewriting import GuidableSchema
from headrace.limited.worker import Refused
from headrace.quoting import shortened

_MOST_ERROR = 1000  # characters
_BYTES = [bytes([value]) for value in range(256)]


def answer(request: bytearray) -> bytes:
    """request: a pickled name of `_TASKS` and its arguments. Gives the pickled result."""
    name, arguments = pickle.loads(request)
    try:
        return pickle.dumps(_TASKS[name](*arguments), 5)
    except RecursionError:  # a RuntimeError
        raise Refused("the JSON schema is nested too deeply") from None
    except (ValueError, RuntimeError) as error:  # the engine's are among them
        raise Refused(shortened(str(error), _MOST_ERROR)) from None


def check(kind: str, text: str, size: int, special: tuple[tuple[int, str], ...]) -> None:
    """Compiles it. size, special: of the vocabulary. Raises what is wrong with it."""
    _compiler(size, special).compile(KINDS[kind], text)


def guidable(text: str, lenient: bool) -> tuple[str, list[str]]:
    """A JSON schema as it is to be compiled, which it has been here, and what it leaves out.

    lenient: what can't be guided is left out; else it raises.
    """
    schema = GuidableSchema(text, lenient, _COMPILES)
    return schema.text(), schema.notes


_COMPILES = partial(check, "json_schema", size=0, special=())  # one, which caches know again
_TASKS: dict[str, Callable[..., Any]] = {"check": check, "guidable": guidable}


@lru_cache(maxsize=4)
def _compiler(size: int, special: tuple[tuple[int, str], ...]) -> _core.GrammarCompiler:
    """Of a vocabulary that has tokens for single bytes alone: what a grammar costs before its
    first token depends on no others."""
    names = dict(special)
    tokens = [b""] * max(size, max(names, default=-1) + 1)
    free = [token_id for token_id in range(len(tokens)) if token_id not in names][: len(_BYTES)]
    for token_id, byte in zip(free, _BYTES, strict=False):
        tokens[token_id] = byte
    tokens += _BYTES[len(free) :]
    return _core.GrammarCompiler(
        library(),
        tokens=tokens,
        first_tokens=[],
        special_tokens=list(special),
        special_restarts=False,
    )
