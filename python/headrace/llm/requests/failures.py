"""A line in the log for the prompts of a call that failed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headrace.llm.outputs import RequestOutput

# By itself, so that a program that reports each failure can silence it.
logger = logging.getLogger("headrace.failures")
_LONGEST_MESSAGE = 200


class FailureNotice:
    """Collects the failures of one call."""

    def __init__(self, counts: Sequence[int]) -> None:
        """`counts`: how many outputs each prompt has."""
        self._prompts = [prompt for prompt, count in enumerate(counts) for _ in range(count)]
        self._count = len(counts)
        self._messages: dict[int, str] = {}  # by prompt

    def note(self, outputs: Mapping[int, RequestOutput]) -> None:
        """`outputs`: new ones, by their place in the call."""
        for tag, output in outputs.items():
            if output.error_code != 200:
                message = " ".join((output.error_msg or "unknown reason").split())
                self._messages.setdefault(self._prompts[tag], message[:_LONGEST_MESSAGE])

    def tell(self) -> None:
        """One warning if anything has failed since the last."""
        if not self._messages:
            return
        messages, self._messages = self._messages, {}
        first = min(messages)
        if self._count == 1:
            logger.warning("the prompt failed: %s", messages[first])
            return
        logger.warning(
            "%d of %d prompts failed: prompts[%d]: %s%s",
            len(messages),
            self._count,
            first,
            messages[first],
            "" if len(messages) == 1 else " (see error_msg of the outputs for the others)",
        )
