"""Guided decoding: outputs that conform to a JSON schema, a regular expression, a grammar...

    constraint = compile_constraint(GuidedDecodingParams(regex="[0-9]+"), tokenizer)
    engine.submit("m", prompt, config, guided=constraint)

LLM does this by itself for `SamplingParams(guided_decoding=...)`.
"""

from headrace.grammar.compiler import compile_constraint, grammar_literal
from headrace.grammar.spec import (
    Grammar,
    from_guided_params,
    from_response_format,
    token_grammar,
)
from headrace.grammar.thinking import limit_thinking

__all__ = [
    "Grammar",
    "compile_constraint",
    "from_guided_params",
    "from_response_format",
    "grammar_literal",
    "limit_thinking",
    "token_grammar",
]
