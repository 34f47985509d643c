"""The text of one output as it grows: token ids in, text out, and where a stop string ends it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.text.detokenizer import Detokenizer
from headrace.text.stop_strings import StopMatch, StopStrings, StopText


class OutputText:
    """Gives the text that each token settles: nothing later takes it back.

    Without stop strings, text goes out as soon as the detokenizer gives it. With stop strings, text
    that may be the start of one is held back. When one is found, the text ends before it, and what
    is pushed after that is ignored. The texts of all calls, joined, are the text of the output.
    """

    __slots__ = (
        "_count",
        "_decode",
        "_detokenizer",
        "_ends",
        "_ids",
        "_keeps_string",
        "_min_tokens",
        "_open",
        "_pieces",
        "_released",
        "_stop",
    )

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: StopStrings | None = None,
        *,
        min_tokens: int = 0,
        keeps_string: bool = False,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        """`detokenizer`: a fresh one, which belongs to this object from now on.

        stops: end the output, but not before it has `min_tokens`.
        keeps_string: the stop string that ends the text is part of it.
        decode: the text of ids by the same tokenizer; decides `released` after a stop string.
        """
        self._detokenizer = detokenizer
        self._stop = None if stops is None else StopText(stops, keeps_string)
        self._min_tokens = min_tokens
        self._keeps_string = keeps_string
        self._decode = decode
        self._count = 0  # tokens pushed
        self._released = 0
        # With stop strings alone:
        self._ids: list[int] = []  # every token with text
        self._pieces: list[str] = []  # all text, as it came
        self._ends: deque[int] = deque()  # where the texts of the tokens held back end
        self._open = 0  # tokens after those: where their text ends isn't known yet

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the output."""
        return None if self._stop is None else self._stop.match

    @property
    def released(self) -> int:
        """How many of the first tokens are sure to be part of the output.

        Without stop strings: all. With stop strings: those whose text has gone out whole. Once one
        has been found: those whose decoded text is a prefix of the output's; all, if the stop
        string is kept, or without `decode`.
        """
        return self._count if self._stop is None else self._released

    def push(self, token_id: int, has_text: bool = True) -> str:
        """Takes a token. `has_text` false: it ends the output and isn't part of its text."""
        if self.match is not None:
            return ""
        self._count += 1
        text = self._detokenizer.push(token_id) if has_text else ""
        if self._stop is None:
            return text
        self._open += 1
        if has_text:
            self._ids.append(token_id)
        return self._search(self._stop, text, last=False)

    def finish(self) -> str:
        """No more tokens: gives what was held back, unless a stop string takes it."""
        if self.match is not None:
            return ""
        text = self._detokenizer.finish()
        return text if self._stop is None else self._search(self._stop, text, last=True)

    def _search(self, stop: StopText, text: str, last: bool) -> str:
        self._pieces.append(text)
        take = stop.finish if last else stop.push
        settled = take(text, self._count >= self._min_tokens)
        if stop.match is not None:
            self._released = self._kept(stop)
            return settled
        if last or not self._detokenizer.holding:
            self._ends.extend([stop.length] * self._open)
            self._open = 0
        while self._ends and self._ends[0] <= stop.settled:
            self._ends.popleft()
            self._released += 1
        return settled

    def _kept(self, stop: StopText) -> int:
        """`released`, once a stop string has been found."""
        if self._keeps_string or self._decode is None:
            return self._count
        text = "".join(self._pieces)[: stop.end]
        for count in range(len(self._ids), self._released, -1):
            if text.startswith(self._decode(self._ids[:count])):
                return count
        return self._released
