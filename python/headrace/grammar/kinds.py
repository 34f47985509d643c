"""The engine's kinds of grammars, by the names that are used here."""

from __future__ import annotations

from headrace import _core

KINDS = {
    "json_schema": _core.GrammarKind.JSON_SCHEMA,
    "regex": _core.GrammarKind.REGEX,
    "lark": _core.GrammarKind.LARK,
    "llguidance": _core.GrammarKind.LLGUIDANCE,
}
