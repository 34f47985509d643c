"""A limit on thinking, and constraints on what follows it alone."""

from __future__ import annotations

from collections.abc import Sequence

from headrace import _core


def limit_thinking(
    *,
    begin: Sequence[int],
    end: Sequence[int],
    closing: Sequence[int],
    max_tokens: int | None,
    answer: _core.TokenConstraint | None,
) -> _core.TokenConstraint:
    """For submit(constraint=...): exactly max_tokens of thinking at most, then the answer.

    begin: ids that open the thinking if the output begins with them; (): it is open.
    end: ids that close it. closing: those that are forced after max_tokens; None: any number.
    answer: what the rest must conform to, as if the output began there; None: nothing.

    Raises ValueError for ids that make no sense.
    """
    return _core.limit_thinking(
        begin=list(begin),
        end=list(end),
        closing=list(closing),
        max_tokens=-1 if max_tokens is None else max_tokens,
        answer=answer,
    )
