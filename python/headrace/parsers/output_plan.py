"""Thinking and tool calls of outputs: how they are parsed, where they begin, and their limits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.errors import UnsupportedError
from headrace.options.sampling_params import SamplingParams
from headrace.options.tools import ToolChoice
from headrace.parsers.create import output_parser
from headrace.parsers.output_parser import OutputParser, Parsed
from headrace.parsers.reasoning.format import ReasoningFormat
from headrace.parsers.reasoning.think_tags import Start
from headrace.parsers.tools.format import Function, ToolFormat
from headrace.prompts import PromptParts
from headrace.quoting import quoted, shortened
from headrace.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headrace.grammar import Grammar


@dataclass(slots=True, frozen=True)
class Parsing:
    """The parsers of an LLM. None: outputs are left as they are.

    tokenizer: None only without parsers. compact: guided calls have no whitespace in their JSON.
    guided: guided decoding is switched on.
    """

    reasoning: ReasoningFormat | None
    calls: type[ToolFormat] | None
    tokenizer: Tokenizer | None
    compact: bool = False
    guided: bool = True

    @property
    def shown(self) -> frozenset[str]:
        """Special tokens that parsers have to see in the text."""
        reasoning = () if self.reasoning is None else self.reasoning.markers
        calls = () if self.calls is None else (*self.calls.markers, *self.calls.others)
        return frozenset((*reasoning, *calls))

    def start(self, prompt: str | Sequence[int]) -> Start:
        """Where an output begins: the last marker of the prompt says it.

        prompt: ids, or the text that the template has put before the answer.
        """
        if self.reasoning is None or self.tokenizer is None:
            return Start.CONTENT
        text = prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)
        return self.reasoning.start_after(text)

    def plan(self, prompt: PromptParts, params: SamplingParams) -> OutputPlan | None:
        """For the outputs of one prompt; None if nothing is parsed or limited.

        Raises ValueError for a tool_choice that can't be met.
        """
        choice = prompt.tool_choice
        if choice.kind in ("required", "named") and self.calls is None:
            raise ValueError(
                f"tool_choice {quoted(choice.name or choice.kind)} needs LLM(tool_call_parser=...)"
            )
        if params.reasoning_max_tokens is not None and self.reasoning is None:
            warnings.warn(
                f"reasoning_max_tokens={params.reasoning_max_tokens} has no effect without "
                "LLM(reasoning_parser=...)",
                stacklevel=2,
            )
        calls = None if choice.kind == "none" else self.calls
        limit = params.response_max_tokens
        if self.reasoning is None and calls is None and limit is None:
            return None
        start = self.start(prompt.opening)
        functions = [Function.from_tool(tool) for tool in prompt.tools]
        return OutputPlan(self, calls, start, functions, choice, params.reasoning_max_tokens, limit)


@dataclass(slots=True, frozen=True)
class OutputPlan:
    """How the outputs of a prompt are parsed and limited."""

    parsing: Parsing
    calls: type[ToolFormat] | None
    start: Start
    functions: Sequence[Function]
    tool_choice: ToolChoice
    reasoning_max_tokens: int | None
    response_max_tokens: int | None

    def parser(self) -> OutputParser:
        """A fresh one, for one output."""
        return output_parser(
            self.parsing.reasoning,
            self.calls,
            start=self.start,
            functions=self.functions,
            guided=self.parsing.guided,
        )

    @property
    def has_calls(self) -> bool:
        """Whether there are functions to be called."""
        return self.calls is not None and bool(self.functions)

    def _guides_calls(self, enabled: bool) -> bool:
        """Whether calls have to follow the functions' schemas."""
        choice = self.tool_choice
        if not self.has_calls:
            return False
        if not enabled and choice.kind in ("required", "named"):
            raise ValueError(
                f"tool_choice {quoted(choice.name or choice.kind)} needs guided decoding, which "
                "guided_decoding_backend='off' has switched off"
            )
        return enabled

    def constraint(
        self,
        answer: Grammar | None,
        enabled: bool,
        compile: Callable[[Grammar], Any],
        notes: list[str],
    ) -> Any:
        """What the whole output must conform to, compiled; None: nothing. Raises ValueError.

        answer: what one without calls must be. enabled: guided decoding is. notes: gets what of
        schemas is left to the model.
        """
        reasoning = self.parsing.reasoning
        limit = self.reasoning_max_tokens
        whole = answer is not None and answer.thinking
        if whole and (self.has_calls or limit is not None):
            other = "tools" if self.has_calls else "reasoning_max_tokens"
            raise ValueError(f"allowed_token_ids and {other} can't be combined: leave one out")
        guided: Any
        if self._guides_calls(enabled):
            guided = self._guided_calls(compile, notes, answer)
        else:
            guided = None if answer is None else compile(answer)
        if whole:
            return guided
        if reasoning is None or self.start is Start.CONTENT or (limit is None and guided is None):
            return guided
        from headrace.grammar import limit_thinking

        closing = reasoning.end if reasoning.channels and guided is not None else reasoning.closing
        return limit_thinking(
            begin=() if self.start is Start.THINKING else self._ids(reasoning.begin),
            end=self._ids(reasoning.end),
            closing=self._ids(closing),
            max_tokens=limit,
            answer=guided,
        )

    def _guided_calls(
        self, compile: Callable[[Grammar], Any], notes: list[str], answer: Grammar | None
    ) -> Any:
        """Calls, or an answer if there may be one: any text, or what `answer` describes."""
        from headrace.parsers.tools.guide import answer_rule, guidable

        choice = self.tool_choice
        rule = None
        if answer is not None and choice.kind == "auto":
            assert self.calls is not None
            rule = answer_rule(answer, self.calls, notes)
        chosen = [f for f in self.functions if choice.name in (None, f.name)]
        if self.parsing.compact:
            chosen = [_compact(function) for function in chosen]
        try:
            functions = [guidable(function, notes) for function in chosen]
            try:
                return compile(self._calls_grammar(functions, rule))
            except UnsupportedError:
                raise
            except ValueError as error:  # together they are too much
                bare = [f if f.strict else Function(f.name, {"type": "object"}) for f in functions]
                if bare == functions:
                    raise
                compiled = compile(self._calls_grammar(bare, rule))
                notes.append(
                    f"tools: their schemas are left to the model ({shortened(str(error))})"
                )
                return compiled
        except UnsupportedError:
            raise
        except ValueError as error:
            raise ValueError(
                f"tools: {error}; guided_decoding_backend='off' leaves calls to the model"
            ) from error

    def _calls_grammar(self, functions: Sequence[Function], answer: str | None) -> Grammar:
        from headrace.grammar import grammar_literal
        from headrace.parsers.tools.guide import call_grammar

        tokenizer, choice = self.parsing.tokenizer, self.tool_choice
        assert tokenizer is not None
        assert self.calls is not None
        return call_grammar(
            self.calls,
            functions,
            lambda text: grammar_literal(text, tokenizer),
            required=choice.kind != "auto",
            several=choice.parallel and choice.kind != "named",
            answer=answer,
        )

    def _ids(self, marker: str) -> list[int]:
        """Raises UnsupportedError if other ids may have the same text."""
        tokenizer, reasoning = self.parsing.tokenizer, self.parsing.reasoning
        assert tokenizer is not None
        assert reasoning is not None
        bare = marker.strip("\n")
        if not reasoning.channels and len(tokenizer.encode(bare)) != 1:
            raise UnsupportedError(
                "reasoning_max_tokens, and constraints on what follows the thinking, need "
                f"{bare} as one token, which this model's vocabulary doesn't have"
            )
        return tokenizer.encode(marker)


def _compact(function: Function) -> Function:
    """Its arguments without whitespace between their parts."""
    given = function.parameters.get("x-guidance")
    rules = {**(given if isinstance(given, Mapping) else {}), "whitespace_flexible": False}
    return replace(function, parameters={**function.parameters, "x-guidance": rules})


class ParsedText:
    """One output as it grows: its parts, and how many tokens it has thought. Not thread safe."""

    def __init__(self, plan: OutputPlan) -> None:
        self._parser = plan.parser()
        self._most = plan.reasoning_max_tokens
        self._limit = plan.response_max_tokens
        self._thought = _ThoughtTokens(plan)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of thinking, without its markers."""
        most = self._most
        return self._thought.count if most is None else min(self._thought.count, most)

    def count(self, token_id: int) -> bool:
        """Takes the next token; whether it is the last that response_max_tokens allows."""
        self._thought.push(token_id)
        return self._limit is not None and self._thought.answered >= self._limit

    def push(self, text: str, last: bool) -> Parsed:
        """What more text settles; with the `last`, what was held back."""
        parsed = self._parser.push(text)
        return parsed + self._parser.finish() if last else parsed


class _ThoughtTokens:
    """Counts the tokens between the markers, and those after them."""

    def __init__(self, plan: OutputPlan) -> None:
        reasoning = plan.parsing.reasoning
        self.count = 0
        self.answered = 0
        self._show: Callable[[int], str] | None = None
        if reasoning is not None and plan.parsing.tokenizer is not None:
            self._show = plan.parsing.tokenizer.token_text
            self._begin, self._end = reasoning.begin, reasoning.end
        self._start = plan.start
        self._tail = ""
        self._pending = 0  # tokens that may be the start of `begin`

    def push(self, token_id: int) -> None:
        if self._start is Start.CONTENT or self._show is None:
            self.answered += 1
            return
        self._tail += self._show(token_id)
        if self._start is Start.EITHER:
            self._open()
        elif self._end in self._tail:
            self._start = Start.CONTENT
        else:
            self.count += 1
            self._tail = self._tail[-len(self._end) :]

    def _open(self) -> None:
        text = self._tail.lstrip()
        self._pending += 1
        if text.startswith(self._begin):
            self._start, self._tail = Start.THINKING, ""
        elif not self._begin.startswith(text):
            self._start = Start.CONTENT
            self.answered = self._pending
