"""What callers say an output must conform to, made into one of the grammars of the engine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.grammar import proof
from headrace.grammar.structural_tag import structural_tag_grammar
from headrace.options.guided_decoding import GuidedDecodingParams
from headrace.quoting import quoted

MAX_TEXT = 1 << 18  # characters; the engine has limits of its own, in bytes
_GBNF_RULE = re.compile(r"^[ \t]*[A-Za-z][\w-]*[ \t]*::=", re.MULTILINE)


@dataclass(slots=True, frozen=True)
class Grammar:
    """kind: "json_schema", "regex", "lark" or "llguidance"; see _core.GrammarKind. lenient: what
    can't be guided of a JSON schema is left to the model. thinking: it is of the thinking, too."""

    kind: str
    text: str
    lenient: bool = False
    thinking: bool = False


def from_guided_params(params: GuidedDecodingParams, compact: bool = False) -> Grammar | None:
    """None if nothing is set. `compact`: JSON without any whitespace between its parts.

    Raises ValueError naming what is wrong; the grammar itself is only compiled later.
    """
    if params.json is not None:
        return json_schema(params.json, compact, lenient=not params.strict)
    if params.json_object:
        return json_schema({"type": "object"}, compact)
    if params.regex is not None:
        return Grammar("regex", _checked(params.regex, "regex"))
    if params.choice is not None:
        return choice(params.choice)
    if params.grammar is not None:
        return grammar(params.grammar)
    if params.structural_tag is not None:
        return structural_tag(params.structural_tag, compact)
    return None


def from_response_format(value: Mapping[str, Any] | None, compact: bool = False) -> Grammar | None:
    """For the `response_format` of OpenAI, FastDeploy and DashInfer; None for {} or "text".

    {"type": "json_object"}, also with "json_schema" (a dict, or a string as in DashInfer);
    {"type": "json_schema", "json_schema": {"schema": {...}}} (or the schema itself, or a string);
    {"type": "structural_tag", "structures": [...], "triggers": [...]}.
    """
    if not value:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(f"response_format must be a dict, got {type(value).__name__}")
    kind = value.get("type")
    if kind == "text":
        return None
    schema = value.get("json_schema")
    if kind == "json_object":
        return json_schema({"type": "object"} if schema is None else _inner(schema), compact)
    if kind == "json_schema":
        if schema is None:
            raise ValueError("response_format: type 'json_schema' needs a 'json_schema'")
        return json_schema(_inner(schema), compact)
    if kind == "structural_tag":
        return structural_tag(dict(value), compact)
    raise ValueError(
        "response_format: type must be 'text', 'json_object', 'json_schema' or 'structural_tag', "
        f"got {quoted(kind)}"
    )


def _inner(schema: Any) -> Any:
    """OpenAI wraps the schema: {"name": ..., "schema": {...}}."""
    if isinstance(schema, Mapping) and isinstance(schema.get("schema"), (Mapping, str)):
        return schema["schema"]
    return schema


def json_schema(schema: Any, compact: bool = False, *, lenient: bool = False) -> Grammar:
    """`schema`: a dict, JSON text, or something with model_json_schema() (pydantic).

    Whitespace between the parts of the JSON: none if `compact`, else a space, or a line break and
    an indent (a small model may never end otherwise), unless the schema's own "x-guidance" says.
    lenient: see Grammar.
    """
    value = schema_value(schema)
    if value is True:
        value = {}
    if isinstance(value, dict):
        own = value.get("x-guidance", {})
        if isinstance(own, dict) and not (own.keys() & _WHITESPACE and not compact):
            value = {**value, "x-guidance": {**own, **(_COMPACT if compact else _BOUNDED)}}
    return Grammar("json_schema", dumped(value, "the JSON schema"), lenient)


_WHITESPACE = {"whitespace_flexible", "whitespace_pattern"}
_COMPACT = {"whitespace_flexible": False}
_BOUNDED = {"whitespace_pattern": r" |\r?\n(?: {0,20}|\t{0,10})"}


def schema_value(schema: Any) -> Any:
    """The schema as parsed JSON: a dict or a bool. Raises ValueError."""
    if callable(getattr(schema, "model_json_schema", None)):
        schema = schema.model_json_schema()
    if isinstance(schema, str):
        try:
            schema = json.loads(_checked(schema, "the JSON schema"))
        except RecursionError:
            raise ValueError("the JSON schema is nested too deeply") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"the JSON schema is not valid JSON: {error}") from error
    if isinstance(schema, Mapping):
        return dict(schema)
    if isinstance(schema, bool):
        return schema
    raise ValueError(
        f"a JSON schema must be a dict, JSON text of one, or a bool, got {type(schema).__name__}"
    )


def dumped(value: Any, name: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} can't be written as JSON: {error}") from error
    return _checked(text, name)


def choice(choices: Sequence[str]) -> Grammar:
    """Exactly one of these texts."""
    items = [json.dumps(_checked(item, "choice")) for item in dict.fromkeys(choices)]
    return Grammar("lark", _checked("start: " + "\n  | ".join(items), "choice"))


def token_grammar(ids: Sequence[int]) -> Grammar:
    """Any number of these tokens, whatever their text is."""
    return Grammar("lark", f"start: <[{','.join(map(str, sorted(set(ids))))}]>*", thinking=True)


def grammar(text: str) -> Grammar:
    """A grammar in llguidance's Lark, or in GBNF (rules written with "::=")."""
    _checked(text, "grammar")
    if not _GBNF_RULE.search(text):
        return Grammar("lark", text)
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return Grammar("lark", any_to_lark(text))
    except RecursionError:
        raise ValueError("grammar: nested too deeply") from None
    except Exception as error:  # the package raises an exception of its own, and others by mistake
        raise ValueError(f"grammar: can't be read as GBNF: {error}") from error


def structural_tag(value: str | Mapping[str, Any], compact: bool = False) -> Grammar:
    """FastDeploy's (xgrammar's) structural tags; see structural_tag_grammar."""
    if isinstance(value, str):
        try:
            value = json.loads(_checked(value, "structural_tag"))
        except RecursionError:
            raise ValueError("structural_tag: nested too deeply") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"structural_tag is not valid JSON: {error}") from error

    def schema_text(schema: Any) -> str:
        return proof.guidable(json_schema(schema, compact).text, lenient=False)[0]

    return Grammar("lark", _checked(structural_tag_grammar(value, schema_text), "structural_tag"))


def _checked(text: str, name: str) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a str, got {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise ValueError(f"{name} has {len(text)} characters, more than the limit of {MAX_TEXT}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} can't be encoded in UTF-8: {error}") from error
    return text
