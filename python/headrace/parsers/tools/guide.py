"""Grammars for outputs that may or must call functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.errors import UnsupportedError
from headrace.grammar import proof
from headrace.grammar.spec import Grammar, json_schema
from headrace.parsers import harmony
from headrace.parsers.registry import HarmonyCalls
from headrace.parsers.tools.format import Function, ToolFormat, literal
from headrace.parsers.tools.schemas import TEXT_VALUE


def guidable(function: Function, notes: list[str]) -> Function:
    """With a schema that can be guided. notes: gets what is left out, and so left to the model.

    Raises ValueError for what can't be guided of a strict one.
    """
    schema = json_schema(function.parameters).text
    try:
        text, left_out = proof.guidable(schema, lenient=not function.strict)
    except ValueError as error:
        if function.strict:
            raise ValueError(f"{function.name} is strict, and {error}") from error
        text, left_out = json_schema({"type": "object"}).text, [f"the schema ({error})"]
    for what in left_out:
        notes.append(f"tools: {function.name}: {what} is left to the model")
    return replace(function, parameters=json.loads(text))


def answer_rule(answer: Grammar, calls: type[ToolFormat], notes: list[str]) -> str:
    """An answer beside calls, in Lark. notes: gets what of its schema is left to the model.

    Raises ValueError for what can't be told from calls, or can't be guided.
    """
    if answer.kind != "json_schema":
        raise ValueError(
            "tools can't be combined with this kind of guided decoding, but with json and "
            "json_object: leave one out, or pass tool_choice='none'"
        )
    if "{" in calls.markers:
        raise UnsupportedError(
            f"tools can't be combined with an answer in JSON here, because {calls.__name__} writes "
            "calls as JSON objects, too: leave one out, or pass tool_choice='none' or 'required'"
        )
    text, left_out = proof.guidable(answer.text, answer.lenient)
    notes += left_out
    return f"%json {text}"


def call_grammar(
    calls: type[ToolFormat],
    functions: Sequence[Function],
    text: Callable[[str], str],
    *,
    required: bool,
    several: bool,
    answer: str | None = None,
) -> Grammar:
    """What an output looks like in which these functions may be called, or have to be.

    Arguments are JSON of the function's schema. Around calls there may be any text, unless a call
    is `required`; then there are only calls. Without `several` there is at most one, and nothing
    follows it.
    text: a literal as Lark wants it, special tokens by their ids.
    answer: a rule; there are only calls, or one such answer.

    Raises UnsupportedError if this format can't be guided.
    """
    if issubclass(calls, HarmonyCalls):
        return Grammar("lark", harmony.call_grammar(functions, text, required, answer))
    try:
        body = calls(functions).grammar(functions, text, several)
    except NotImplementedError:
        raise UnsupportedError(
            f"the calls of {calls.__name__} can't be guided with this tokenizer: use "
            "guided_decoding_backend='off', which leaves them to the model"
        ) from None
    marker = calls.markers[0]
    opening = text(marker)
    lines = ["TEXT: /(.|\\n)*/", "LINES: /\\n{1,4}/"]
    if calls.text_end:
        lines.append(f"{TEXT_VALUE}[lazy]: TEXT {literal(calls.text_end)}")
    if required:
        lines.insert(0, f"start: LINES? {opening} {body}")
    elif answer is not None:
        lines.insert(0, f"start: answer | LINES? {opening} {body}\nanswer: {answer}")
    elif calls.at_start:
        lines.insert(0, f'start: LINES? {opening} {body} | OTHER | ""')
        lines.append(f"OTHER: /[ \\n\\r\\t]*[^ \\n\\r\\t\\{marker[0]}](.|\\n)*/")
    elif not several and opening == literal(marker):
        lines.insert(0, f"start: TEXT | opening {body}\nopening[lazy]: TEXT {opening}")
    elif not several:
        lines.insert(0, f"start: TEXT ({opening} {body})?")
    elif opening == literal(marker):
        lines.insert(0, f"start: call* TEXT\ncall: opening {body}\nopening[lazy]: TEXT {opening}")
    else:
        lines.insert(0, f"start: TEXT ({opening} {body} TEXT)*")
    return Grammar("lark", "\n".join(lines))
