"""What the outputs of one call must conform to, compiled once for all its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.options.sampling_params import SamplingParams

if TYPE_CHECKING:
    from headrace.grammar import Grammar
    from headrace.llm.requests.planner import RequestPlanner


class Constraints:
    """Compiles each constraint of a call once, however many requests have it. One that is wrong is
    remembered, too. Belongs to one thread at a time."""

    def __init__(self, planner: RequestPlanner) -> None:
        self._args = planner.args
        self._tokenizer = planner.tokenizer
        self._grammars: dict[int, tuple[SamplingParams, Grammar | None]] = {}  # by id of the params
        self._compiled: dict[Grammar, Any] = {}  # a constraint, or the error
        self.notes: list[str] = []  # what of schemas is left to the model

    @property
    def enabled(self) -> bool:
        """Whether there is guided decoding."""
        return self._args.guided_decoding_backend != "off"

    def of(self, params: SamplingParams) -> Any:
        """What `grammar` gives, compiled. Raises ValueError."""
        grammar = self.grammar(params)
        return None if grammar is None else self.compile(grammar)

    def grammar(self, params: SamplingParams) -> Grammar | None:
        """What guided_decoding or allowed_token_ids ask for; None if nothing. Raises ValueError."""
        guided = params.guided_decoding
        if params.allowed_token_ids is not None:
            return self._of_tokens(params.allowed_token_ids)
        if guided is None or not guided.to_dict():
            return None
        if not self.enabled:
            raise ValueError(
                "guided_backend is None, use guided_decoding_backend to specify the backend"
            )
        from headrace.grammar import from_guided_params

        known = self._grammars.get(id(params))
        if known is None:
            compact = self._args.guided_decoding_disable_any_whitespace
            known = self._grammars[id(params)] = (params, from_guided_params(guided, compact))
        return known[1]

    def _of_tokens(self, ids: Sequence[int]) -> Grammar:
        if not self.enabled:
            raise ValueError(
                "allowed_token_ids needs guided decoding, which guided_decoding_backend='off' has "
                "switched off"
            )
        size = 0 if self._tokenizer is None else len(self._tokenizer)
        if size and max(ids) >= size:
            raise ValueError(f"allowed_token_ids must hold ids below {size}, got {max(ids)}")
        from headrace.grammar import token_grammar

        return token_grammar(ids)

    def compile(self, grammar: Grammar) -> Any:
        """Raises ValueError naming what is wrong with the grammar."""
        from headrace.grammar import compile_constraint

        if grammar not in self._compiled:
            try:
                self._compiled[grammar] = compile_constraint(
                    grammar, self._tokenizer, notes=self.notes
                )
            except ValueError as error:
                self._compiled[grammar] = error
        found = self._compiled[grammar]
        if isinstance(found, ValueError):
            raise found.with_traceback(None)
        return found
