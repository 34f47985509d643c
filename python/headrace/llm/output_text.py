"""The output of one sequence as it grows: ids to text, and where a stop string ends it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headrace.native import PositionLogprobs
from headrace.options.sampling_params import SamplingParams
from headrace.text.detokenizer import Detokenizer, NullDetokenizer
from headrace.text.stop_strings import StopMatch, StopStrings, StopText
from headrace.text.tokenizer import Tokenizer


@dataclass(slots=True)
class GeneratedToken:
    """An id with its log-probabilities, if asked for."""

    id: int
    logprobs: PositionLogprobs | None = None


@dataclass(slots=True)
class Increment:
    """Tokens and text that nothing later takes back."""

    tokens: list[GeneratedToken]
    text: str


class OutputText:
    """Turns the tokens of one output into increments of ids and text.

    Without stop strings a token is released at once, and its text as soon as it is settled. With
    stop strings, text that may be the start of one is held back, and so are the tokens it came
    from. When a stop string is found, the text ends before it and the ids with the last token
    whose decoded text is still a prefix of that text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        params: SamplingParams,
        stops: StopStrings | None,
        shown: frozenset[str] = frozenset(),
    ) -> None:
        """`stops`: of params.stop; None: no stop strings. They need a tokenizer.

        shown: special tokens that stay in the text.
        """
        self._params = params
        self._detokenizer: Detokenizer = NullDetokenizer()
        if tokenizer is not None:
            self._detokenizer = tokenizer.detokenizer(params.skip_special_tokens, shown)
        self._ready_tokens: list[GeneratedToken] = []
        self._ready_text: list[str] = []
        self._hold: _Hold | None = None
        if stops is not None and tokenizer is not None:
            self._hold = _Hold(tokenizer, params, stops, shown)

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the output; tokens pushed after it are ignored."""
        return None if self._hold is None else self._hold.match

    def push(self, token: GeneratedToken, has_text: bool = True) -> None:
        """Takes a token. `has_text` false: it ends the output and isn't part of its text."""
        text = self._detokenizer.push(token.id) if has_text else ""
        if self._hold is None:
            self._ready_tokens.append(token)
            self._ready_text.append(text)
        elif self.match is None:
            self._hold.push(token, text, has_text, self._detokenizer.holding)

    def finish(self) -> None:
        """No more tokens: releases what was held back, unless a stop string takes it."""
        text = self._detokenizer.finish()
        if self._hold is None:
            self._ready_text.append(text)
        elif self.match is None:
            self._hold.finish(text)

    def take(self) -> Increment:
        """What has been released since the last call."""
        if self._hold is not None:
            return self._hold.take()
        increment = Increment(self._ready_tokens, "".join(self._ready_text))
        self._ready_tokens, self._ready_text = [], []
        return increment


class _Hold:
    """Tokens and text of an output with stop strings, until they are settled."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        stops: StopStrings,
        shown: frozenset[str],
    ) -> None:
        self._tokenizer = tokenizer
        self._shown = shown
        self._params = params
        self._text = StopText(stops, params.include_stop_str_in_output)
        self._ids: list[int] = []  # every token with text
        self._count = 0  # every token
        self._pieces: list[str] = []  # all text, as it came
        self._ready = Increment([], "")
        self._taken = 0  # tokens released
        self._held: deque[tuple[int, GeneratedToken]] = deque()  # with the end of their text
        self._open: list[GeneratedToken] = []  # the end of their text isn't known yet

    @property
    def match(self) -> StopMatch | None:
        return self._text.match

    def push(self, token: GeneratedToken, text: str, has_text: bool, holding: bool) -> None:
        self._count += 1
        self._open.append(token)
        if has_text:
            self._ids.append(token.id)
        self._pieces.append(text)
        self._ready.text += self._text.push(text, self._may_stop())
        if self.match is not None:
            self._cut()
            return
        if not holding:
            self._settle_open()
        self._release()

    def finish(self, text: str) -> None:
        self._pieces.append(text)
        self._ready.text += self._text.finish(text, self._may_stop())
        if self.match is not None:
            self._cut()
            return
        self._settle_open()
        self._release()

    def take(self) -> Increment:
        ready, self._ready = self._ready, Increment([], "")
        return ready

    def _may_stop(self) -> bool:
        return self._count >= self._params.min_tokens

    def _settle_open(self) -> None:
        """The text of the open tokens ends here."""
        self._held.extend((self._text.length, item) for item in self._open)
        self._open.clear()

    def _release(self) -> None:
        while self._held and self._held[0][0] <= self._text.settled:
            self._ready.tokens.append(self._held.popleft()[1])
            self._taken += 1

    def _cut(self) -> None:
        tokens = [item for _, item in self._held] + self._open
        if not self._params.include_stop_str_in_output:
            tokens = tokens[: self._kept("".join(self._pieces)[: self._text.end]) - self._taken]
        self._ready.tokens += tokens

    def _kept(self, text: str) -> int:
        """How many tokens of the output decode to a prefix of its text."""
        for count in range(len(self._ids), self._taken, -1):
            if text.startswith(self._decode(self._ids[:count])):
                return count
        return self._taken

    def _decode(self, ids: list[int]) -> str:
        skip = self._params.skip_special_tokens
        if not self._shown:
            return self._tokenizer.decode(ids, skip)
        detokenizer = self._tokenizer.detokenizer(skip, self._shown)
        return "".join([*map(detokenizer.push, ids), detokenizer.finish()])
