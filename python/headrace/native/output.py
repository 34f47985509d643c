"""What a queue gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace import _core
from headrace.short_repr import short_repr


@dataclass(slots=True)
class Output:
    """What came of a request since the last read.

    token_ids: the new ids; the last of all is the EOS or stop token that ended the output, if any.
    text: what these ids add to the text; "" if the request was submitted without text. The texts of
        all outputs, joined, are the text of all ids but the one that ended them.
    logprobs: one per token id, when asked for. prompt_logprobs: once, before the first token.
    pooled: of a request for an embedding or for logits, with the last output: the numbers.
    finished: this is the last output; finish_reason says why.
    stop_token: the EOS or stop token that ended it; -1: none. stop_sequence: which of the config's
        stop_sequences did; -1: none.
    stop_string: the text of Engine.submit's `stop` that ended it; the text ends before it, the ids
        with the token that completed it.
    error_code, error_message: "ok" and "", or why it ended early.
    """

    token_ids: list[int]
    text: str
    logprobs: list[_core.PositionLogprobs]
    prompt_logprobs: list[_core.PositionLogprobs]
    finished: bool
    finish_reason: _core.FinishReason
    stop_token: int
    error_code: str
    error_message: str
    stop_string: str | None = None
    pooled: list[float] = field(default_factory=list)
    stop_sequence: int = -1

    def __repr__(self) -> str:
        end = {"finish_reason": self.finish_reason} if self.finished else {}
        failure = {"error_code": self.error_code, "error_message": self.error_message}
        return short_repr(
            self,
            {
                "token_ids": self.token_ids,
                **({"text": self.text} if self.text else {}),
                **({"pooled": self.pooled} if self.pooled else {}),
                **end,
                **(failure if self.error_message else {}),
            },
        )


def from_core(output: _core.Output) -> Output:
    """Without text."""
    return Output(
        output.token_ids,
        "",
        output.logprobs,
        output.prompt_logprobs,
        output.finished,
        output.finish_reason,
        output.stop_token,
        output.error_code,
        output.error_message,
        pooled=output.pooled,
        stop_sequence=output.stop_sequence,
    )
