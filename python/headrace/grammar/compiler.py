"""Grammars compiled for a tokenizer, and a cache of them."""

from __future__ import annotations

import importlib.util
import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace import _core
from headrace.errors import UnsupportedError
from headrace.grammar.spec import Grammar, from_guided_params, from_response_format
from headrace.options.guided_decoding import GuidedDecodingParams
from headrace.text.token_bytes import TokenBytes
from headrace.text.tokenizer import Tokenizer

CACHED_GRAMMARS = 64  # per tokenizer
_KINDS = {
    "json_schema": _core.GrammarKind.JSON_SCHEMA,
    "regex": _core.GrammarKind.REGEX,
    "lark": _core.GrammarKind.LARK,
    "llguidance": _core.GrammarKind.LLGUIDANCE,
}

Guided = GuidedDecodingParams | Mapping[str, Any] | Grammar | _core.TokenConstraint | None


def compile_constraint(
    guided: Guided, tokenizer: Tokenizer | None, *, compact: bool = False
) -> _core.TokenConstraint | None:
    """What `submit(constraint=...)` takes; None if nothing is constrained.

    guided: GuidedDecodingParams, a response_format, a Grammar, or a constraint, which is returned
        as it is.
    compact: JSON without any whitespace between its parts.

    Compiles on the caller's thread, without the GIL; what has been compiled lately for the same
    tokenizer is reused. Any thread may call it, and any number of requests carry the result.
    Raises ValueError naming what is wrong with the grammar.
    """
    if guided is None or isinstance(guided, _core.TokenConstraint):
        return guided
    grammar = _grammar(guided, compact)
    if grammar is None:
        return None
    if tokenizer is None:
        raise ValueError("guided decoding needs a tokenizer, and the model folder has none")
    return _compiler_of(tokenizer).compile(grammar)


def _grammar(guided: Any, compact: bool) -> Grammar | None:
    if isinstance(guided, Grammar):
        return guided
    if isinstance(guided, GuidedDecodingParams):
        return from_guided_params(guided, compact)
    if isinstance(guided, Mapping):
        return from_response_format(guided, compact)
    raise TypeError(
        "guided must be a GuidedDecodingParams, a response_format or a Grammar, got "
        f"{type(guided).__name__}"
    )


class GrammarCache:
    """Compiles for one vocabulary and keeps what was used last. Thread safe."""

    def __init__(self, vocabulary: TokenBytes) -> None:
        self._compiler = _core.GrammarCompiler(
            _library(),
            tokens=vocabulary.tokens,
            first_tokens=list(vocabulary.first.items()),
            special_tokens=list(vocabulary.special.items()),
            special_restarts=vocabulary.special_restarts,
        )
        self.special = {name: token_id for token_id, name in vocabulary.special.items()}
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Grammar, _core.TokenConstraint] = OrderedDict()

    def compile(self, grammar: Grammar) -> _core.TokenConstraint:
        """Raises ValueError naming what is wrong with the grammar."""
        with self._lock:
            known = self._compiled.get(grammar)
            if known is not None:
                self._compiled.move_to_end(grammar)
                return known
        constraint = self._compiler.compile(_KINDS[grammar.kind], grammar.text)
        with self._lock:
            self._compiled[grammar] = constraint
            while len(self._compiled) > CACHED_GRAMMARS:
                self._compiled.popitem(last=False)
        return constraint


def grammar_literal(text: str, tokenizer: Tokenizer) -> str:
    """A text as a grammar in Lark names it: by its id if it is one of the control tokens."""
    token_id = _compiler_of(tokenizer).special.get(text)
    return json.dumps(text, ensure_ascii=False) if token_id is None else f"<[{token_id}]>"


_compilers: weakref.WeakKeyDictionary[Tokenizer, GrammarCache] = weakref.WeakKeyDictionary()
_compilers_lock = threading.Lock()


def _compiler_of(tokenizer: Tokenizer) -> GrammarCache:
    with _compilers_lock:
        found = _compilers.get(tokenizer)
        if found is None:
            found = _compilers[tokenizer] = GrammarCache(tokenizer.token_bytes())
        return found


def _library() -> str:
    """The shared library in the package `llguidance`, which is not imported for it."""
    spec = importlib.util.find_spec("llguidance")
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for path in sorted(Path(folder).glob("_lib*.so")):
            return str(path)
    raise UnsupportedError("guided decoding needs the package llguidance: pip install llguidance")
