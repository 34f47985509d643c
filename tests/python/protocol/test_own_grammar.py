"""The engine's own constraints beside llguidance's: the same bytes are allowed, step by step."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator

import pytest
from grammar_cases import REGEXES, SCHEMAS, random_regex, random_schema
from llguidance import LLMatcher, LLTokenizer

from headrace import _core

CASES = int(os.environ.get("HEADRACE_GRAMMAR_CASES", "25"))  # random ones, of each kind
WALKS = 2
STEPS = 40
SPACE = {"whitespace_pattern": r" |\r?\n(?: {0,20}|\t{0,10})"}  # the own engine's default
BYTES = [bytes([value]) for value in range(256)]
BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}

OWN = _core.GrammarCompiler(
    None, tokens=BYTES, first_tokens=[], special_tokens=[], special_restarts=False
)
KINDS = {"json_schema": _core.GrammarKind.JSON_SCHEMA, "regex": _core.GrammarKind.REGEX}
TOKENIZER = LLTokenizer("byte")


class Oracle:
    """llguidance, on the same vocabulary. Raises ValueError."""

    def __init__(self, kind: str, text: str) -> None:
        if kind == "regex":
            grammar = LLMatcher.grammar_from_regex(text)
        else:
            schema = json.loads(text)
            if isinstance(schema, bool):
                schema = {"allOf": [schema]}
            schema = {"x-guidance": SPACE, **schema}
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        self._matcher = LLMatcher(TOKENIZER, grammar, log_level=0)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())

    def next(self) -> tuple[list[int], bool]:
        mask = self._matcher.compute_bitmask()
        allowed = [value for value in range(256) if mask[value // 8] >> (value % 8) & 1]
        return allowed, self._matcher.is_accepting()

    def append(self, token: int) -> None:
        assert self._matcher.consume_token(token)


def says(kind: str, text: str, names: set[str]) -> bool:
    return kind == "json_schema" and any(f'"{name}"' in text for name in names)


def is_known(kind: str, text: str, out: bytes, more: set[int], less: set[int]) -> bool:
    """Differences that are meant. more, less: bytes that only the own engine allows, or only
    llguidance; both empty: they disagree on whether the output may end."""
    if less and not more and out.endswith((b"\\", b"\\u", b"\\u0", b"\\u00")):
        # Own: texts that are written out have the shortest escapes only, and names of properties
        # those that they need. With all others, a name that is taken could be written once more.
        return says(kind, text, {"const", "enum", "properties"})
    if not less and says(kind, text, BOUNDS) and re.search(rb"[-0-9.]$", out):
        # Own: -0 wherever 0 is; fewer decimals than a bound or a multiple has.
        return True
    # Own: the last two groups of an IPv6 address may be an IPv4 address, and "::" one group.
    return "ipv6" in text and b":" in out


def compiled(kind: str, text: str) -> _core.TokenConstraint | None:
    """None: both refuse it. One that only one of them refuses fails the test."""
    own, errors = None, []
    try:
        own = OWN.compile(KINDS[kind], text)
    except (ValueError, RuntimeError) as error:
        errors.append(str(error))
    try:
        Oracle(kind, text)
    except ValueError as error:
        errors.append(str(error))
    assert len(errors) != 1, (text, errors)
    return own


def walk(kind: str, text: str, own: _core.TokenConstraint, rng: random.Random) -> bytes | None:
    """One random output, followed by both. The output, if it came to its end."""
    mine, theirs, out = own.start(), Oracle(kind, text), b""
    for _ in range(STEPS):
        allowed, ends = mine.next(256)
        known, known_ends = theirs.next()
        more, less = set(allowed) - set(known), set(known) - set(allowed)
        if more or less or ends != known_ends:
            where = (text, out, bytes(more), bytes(less), ends, known_ends)
            assert is_known(kind, text, out, more, less), where
            return None
        if ends and (not allowed or rng.random() < 0.2):
            return out
        assert allowed, (text, out)
        closing = [value for value in allowed if value in b'"}],:']
        token = rng.choice(closing if closing and rng.random() < 0.35 else allowed)
        mine.append(token)
        theirs.append(token)
        out += bytes([token])
    return None


def follow(kind: str, text: str, rng: random.Random) -> Iterator[bytes]:
    """Outputs that came to their end."""
    own = compiled(kind, text)
    if own is not None:
        outputs = [walk(kind, text, own, rng) for _ in range(WALKS)]
        yield from (out for out in outputs if out is not None)


def test_schemas() -> None:
    rng = random.Random(1)
    for schema in SCHEMAS:
        for out in follow("json_schema", json.dumps(schema), rng):
            json.loads(out)


def test_regexes() -> None:
    rng = random.Random(2)
    for regex in REGEXES:
        for out in follow("regex", regex, rng):
            out.decode()


def test_random_schemas() -> None:
    rng = random.Random(3)
    for _ in range(CASES):
        for out in follow("json_schema", json.dumps(random_schema(rng)), rng):
            json.loads(out)


def test_random_regexes() -> None:
    rng = random.Random(4)
    for _ in range(CASES):
        for out in follow("regex", random_regex(rng), rng):
            out.decode()


@pytest.mark.parametrize("kind", ["LARK", "LLGUIDANCE"])
def test_grammars_need_llguidance(kind: str) -> None:
    with pytest.raises(Exception, match="llguidance"):
        OWN.compile(_core.GrammarKind[kind], "start: /a/")
