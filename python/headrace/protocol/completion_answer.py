"""Answers of /v1/completions: whole ones, and the pieces of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.llm.outputs import CompletionOutput, RequestOutput
from headrace.protocol.chat_answer import answer_tokens, prompt_tokens
from headrace.protocol.completions import CompletionRequest
from headrace.protocol.logprobs import (
    TextOffsets,
    completion_logprobs,
    output_positions,
    prompt_logprobs,
)
from headrace.protocol.timings import Timings
from headrace.protocol.usage import usage, usage_counts
from headrace.text.tokenizer import Tokenizer


def completion_answer(
    request: CompletionRequest,
    outputs: Sequence[RequestOutput],
    *,
    id: str,
    model: str,
    created: int,
    tokenizer: Tokenizer | None = None,
) -> dict[str, Any]:
    """The "text_completion" object of the finished outputs: n for each prompt, in their order.

    created: seconds since the epoch. tokenizer: the model's.
    """
    if request.prompt_only:
        outputs = [_prompt_alone(output) for output in outputs]
    return {
        "id": id,
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": [
            _choice(request, place, output, tokenizer) for place, output in enumerate(outputs)
        ],
        "usage": usage(outputs),
    }


def _prompt_alone(output: RequestOutput) -> RequestOutput:
    """Without the token that the engine generates at least."""
    part = output.outputs
    empty = CompletionOutput(index=part.index, finish_reason="length")
    if part.logprobs is not None:
        empty.logprobs = []
    return replace(output, outputs=empty)


def _choice(
    request: CompletionRequest, place: int, output: RequestOutput, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    part, top = output.outputs, request.params.logprobs
    positions = [] if top is None else output_positions(part)
    offsets, shown = list[int](), ""
    if request.echo:
        shown = _prompt_text(request, place, output, tokenizer)
        echoed = list(zip(output.prompt_token_ids, output.prompt_logprobs or (), strict=False))
        positions = [*echoed, *positions]
        begun = _prompt_offsets(output.prompt_token_ids, shown, tokenizer)
        offsets = [begun.of(position) for position in echoed]
    answer = _answer_offsets(request, output, len(shown), tokenizer)
    offsets += [answer.of(position) for position in positions[len(offsets) :]]
    choice = {
        "index": place,
        "text": shown + part.text,
        "logprobs": None
        if top is None or part.logprobs is None
        else completion_logprobs(positions, offsets, top, tokenizer),
        "finish_reason": part.finish_reason,
        "stop_reason": part.stop_reason,
    }
    if request.prompt_logprobs is not None:
        choice["prompt_logprobs"] = prompt_logprobs(output, request.prompt_logprobs)
    if request.return_token_ids:
        choice["token_ids"] = part.token_ids
        choice |= prompt_tokens(output) | answer_tokens(part)
    return choice


def _prompt_text(
    request: CompletionRequest, place: int, output: RequestOutput, tokenizer: Tokenizer | None
) -> str:
    prompt = request.prompts[place // request.params.n]
    if isinstance(prompt, str):
        return prompt
    return "" if tokenizer is None else tokenizer.decode(output.prompt_token_ids)


def _prompt_offsets(ids: Sequence[int], shown: str, tokenizer: Tokenizer | None) -> TextOffsets:
    """Special tokens are in the text if the caller has written them, or sent ids."""
    if tokenizer is None:
        return TextOffsets(None)
    added = tokenizer.decode(ids) != shown and tokenizer.decode(ids, True) == shown
    return TextOffsets(tokenizer.detokenizer(skip_special_tokens=added))


def _answer_offsets(
    request: CompletionRequest, output: RequestOutput, start: int, tokenizer: Tokenizer | None
) -> TextOffsets:
    """Of the tokens that are generated."""
    if tokenizer is None:
        return TextOffsets(None, start)
    params = request.params
    after = output.prompt_token_ids if params.guided_decoding is None else ()
    return TextOffsets(tokenizer.detokenizer(params.skip_special_tokens, after=after), start)


class CompletionStream:
    """Makes the objects of a stream from the increments of one request's prompts."""

    def __init__(
        self,
        request: CompletionRequest,
        *,
        id: str,
        model: str,
        created: int,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """tokenizer: the model's."""
        self._request = request
        self._tokenizer = tokenizer
        self._head = {"id": id, "object": "text_completion", "created": created, "model": model}
        self._offsets: dict[int, TextOffsets] = {}  # by choice
        self._prompts: dict[int, tuple[int, int]] = {}  # tokens, and cached ones, by prompt
        self._completion = 0
        self._timings = Timings()

    def pieces(self, place: int, update: RequestOutput) -> list[dict[str, Any]]:
        """The objects for one increment of prompt number `place`; none if it says nothing new."""
        part = update.outputs
        index = place * self._request.params.n + part.index
        tokens, cached = self._prompts.get(place, (0, 0))
        self._prompts[place] = (
            max(tokens, len(update.prompt_token_ids)),
            max(cached, update.num_cached_tokens if part.index == 0 else 0),
        )
        self._completion += len(part.token_ids)
        self._timings.note(update.metrics)
        ids = part.token_ids if self._request.return_token_ids else None
        if not (part.text or part.finish_reason or part.logprobs or ids):
            return []
        choice = {
            "index": index,
            "text": part.text,
            "logprobs": None if part.logprobs is None else self._logprobs(index, update),
            "finish_reason": part.finish_reason,
            "stop_reason": part.stop_reason,
        }
        if ids is not None:
            choice["token_ids"] = ids
            choice |= answer_tokens(part)
            if part.send_idx == 0:
                choice |= prompt_tokens(update)
        piece = {**self._head, "choices": [choice]}
        if self._request.stream.include_usage:
            piece["usage"] = self._usage() if self._request.stream.continuous_usage else None
        return [piece]

    def last_piece(self) -> dict[str, Any] | None:
        """The piece with the token counts, if it was asked for."""
        if not self._request.stream.include_usage:
            return None
        counts = self._usage()
        piece = {**self._head, "choices": [], "usage": counts}
        if self._request.stream.include_timings:
            piece["timings"] = self._timings.counts(counts["prompt_tokens"], self._completion)
        return piece

    def _logprobs(self, index: int, update: RequestOutput) -> dict[str, Any]:
        offsets = self._offsets.get(index)
        if offsets is None:
            offsets = _answer_offsets(self._request, update, 0, self._tokenizer)
            self._offsets[index] = offsets
        positions = output_positions(update.outputs)
        top = self._request.params.logprobs or 0
        return completion_logprobs(
            positions, [offsets.of(position) for position in positions], top, self._tokenizer
        )

    def _usage(self) -> dict[str, Any]:
        prompt = sum(tokens for tokens, _ in self._prompts.values())
        cached = sum(cached for _, cached in self._prompts.values())
        return usage_counts(prompt, self._completion, cached, 0)
