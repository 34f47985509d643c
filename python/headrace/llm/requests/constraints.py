"""What the outputs of one call must conform to, compiled once for all its requests."""

from __future__ import annotations

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
        """What guided_decoding asks for, compiled; None if nothing. Raises ValueError."""
        guided = params.guided_decoding
        if guided is None or not guided.to_dict():
            return None
        if not self.enabled:
            raise ValueError(
                "guided_backend is None, use guided_decoding_backend to specify the backend"
            )
        from headrace.grammar import from_guided_params

        known = self._grammars.get(id(params))
        if known is None:
            compact = (
                self._args.guided_decoding_disable_any_whitespace or guided.disable_any_whitespace
            )
            known = self._grammars[id(params)] = (params, from_guided_params(guided, compact))
        return None if known[1] is None else self.compile(known[1])

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
