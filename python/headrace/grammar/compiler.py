"""Grammars compiled for a tokenizer, and a cache of them."""

from __future__ import annotations

import json
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from headrace import _core
from headrace.grammar import proof
from headrace.grammar.kinds import KINDS
from headrace.grammar.library import library
from headrace.grammar.spec import Grammar, from_guided_params, from_response_format
from headrace.options.guided_decoding import GuidedDecodingParams
from headrace.text.token_bytes import TokenBytes
from headrace.text.tokenizer import Tokenizer

CACHED_GRAMMARS = 64  # per tokenizer

Compiled = tuple[_core.TokenConstraint, list[str]]  # and what it leaves to the model
Guided = GuidedDecodingParams | Mapping[str, Any] | Grammar | _core.TokenConstraint | None


def compile_constraint(
    guided: Guided,
    tokenizer: Tokenizer | None,
    *,
    compact: bool = False,
    notes: list[str] | None = None,
) -> _core.TokenConstraint | None:
    """What `submit(constraint=...)` takes; None if nothing is constrained.

    guided: GuidedDecodingParams, a response_format, a Grammar, or a constraint, which is returned
        as it is.
    compact: JSON without any whitespace between its parts.
    notes: gets what of a schema is left to the model, if it is one that isn't strict, a sentence
        each; None: these are warnings.

    Compiles on the caller's thread, without the GIL, after another process has tried it (proof.py);
    what has been compiled lately for the same tokenizer is reused. Any thread may call it, and any
    number of requests carry the result. Raises ValueError naming what is wrong with the grammar,
    and EngineError: 503 if too many that take long are being tried, 500 if that process fails.
    """
    if guided is None or isinstance(guided, _core.TokenConstraint):
        return guided
    grammar = _grammar(guided, compact)
    if grammar is None:
        return None
    if tokenizer is None:
        raise ValueError("guided decoding needs a tokenizer, and the model folder has none")
    constraint, left_out = _compiler_of(tokenizer).compile(grammar)
    if notes is not None:
        notes += map(_note, left_out)
    else:
        for what in left_out:
            warnings.warn(_note(what), stacklevel=3)
    return constraint


def _note(what: str) -> str:
    return f"the JSON schema: {what} is left to the model"


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
        proof.prepare()
        self._compiler = _core.GrammarCompiler(
            library(),
            tokens=vocabulary.tokens,
            first_tokens=list(vocabulary.first.items()),
            special_tokens=list(vocabulary.special.items()),
            special_restarts=vocabulary.special_restarts,
        )
        self._size = len(vocabulary.tokens)
        self._names = tuple(vocabulary.special.items())
        self.special = {name: token_id for token_id, name in vocabulary.special.items()}
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Grammar, Compiled] = OrderedDict()

    def compile(self, grammar: Grammar) -> Compiled:
        """Raises what compile_constraint does."""
        with self._lock:
            known = self._compiled.get(grammar)
            if known is not None:
                self._compiled.move_to_end(grammar)
                return known
        text, notes = self._proven(grammar)
        compiled = self._compiler.compile(KINDS[grammar.kind], text), notes
        with self._lock:
            self._compiled[grammar] = compiled
            while len(self._compiled) > CACHED_GRAMMARS:
                self._compiled.popitem(last=False)
        return compiled

    def _proven(self, grammar: Grammar) -> tuple[str, list[str]]:
        """The text to compile, which is known to be possible, and what it leaves out."""
        if grammar.kind == "json_schema":
            return proof.guidable(grammar.text, grammar.lenient)
        named = grammar.kind in ("lark", "llguidance")  # which may name control tokens
        size, names = (self._size, self._names) if named else (0, ())
        proof.check(grammar.kind, grammar.text, size, names)
        return grammar.text, []


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
