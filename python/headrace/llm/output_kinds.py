"""Updates in the form that their SamplingParams ask for."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from headrace.llm.outputs import RequestOutput
from headrace.options.output_kind import RequestOutputKind


class OutputKinds:
    """Turns a stream's increments into what SamplingParams.output_kind says; None: leaves them."""

    def __init__(self, kinds: Sequence[RequestOutputKind | None]) -> None:
        """`kinds`: of each output of the call."""
        self._kinds = kinds
        self._known: dict[int, RequestOutput] = {}  # so far, of outputs that aren't finished

    def of(self, news: Mapping[int, RequestOutput]) -> dict[int, RequestOutput]:
        """`news`: increments, by their output's place in the call."""
        formed = {place: self._formed(place, update) for place, update in news.items()}
        return {place: update for place, update in formed.items() if update is not None}

    def _formed(self, place: int, update: RequestOutput) -> RequestOutput | None:
        kind = self._kinds[place]
        if kind is None or kind is RequestOutputKind.DELTA:
            return update
        known = self._known.setdefault(place, update)
        if known is not update:
            known.accumulate(update)
        if known.finished:
            return self._known.pop(place)
        return None if kind is RequestOutputKind.FINAL_ONLY else _copied(known)


def _copied(output: RequestOutput) -> RequestOutput:
    """As it is now: what comes is added to the lists of neither."""
    copied = copy.copy(output)
    copied.outputs, copied.metrics = copy.copy(output.outputs), copy.copy(output.metrics)
    return copied
