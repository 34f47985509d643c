"""Answers of /v1/completions: whole ones, and the pieces of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.llm.outputs import RequestOutput
from headrace.protocol.completions import CompletionRequest
from headrace.protocol.logprobs import completion_logprobs
from headrace.protocol.timings import Timings
from headrace.protocol.usage import usage, usage_counts


def completion_answer(
    request: CompletionRequest,
    outputs: Sequence[RequestOutput],
    *,
    id: str,
    model: str,
    created: int,
) -> dict[str, Any]:
    """The "text_completion" object of the finished outputs: n for each prompt, in their order.

    created: seconds since the epoch.
    """
    return {
        "id": id,
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": [_choice(request, place, output) for place, output in enumerate(outputs)],
        "usage": usage(outputs),
    }


def _choice(request: CompletionRequest, place: int, output: RequestOutput) -> dict[str, Any]:
    part = output.outputs
    text, start, prompt = part.text, 0, None
    if request.echo:
        shown = str(request.prompts[place // request.params.n])
        text, start = shown + text, len(shown)
        if output.prompt_logprobs is not None:
            start = 0
            prompt = (output.prompt_token_ids, output.prompt_logprobs)
    choice = {
        "index": place,
        "text": text,
        "logprobs": completion_logprobs(part, request.params.logprobs or 0, start, prompt),
        "finish_reason": part.finish_reason,
        "stop_reason": part.stop_reason,
    }
    if request.return_token_ids:
        choice["token_ids"] = part.token_ids
        choice["prompt_token_ids"] = output.prompt_token_ids
    return choice


class CompletionStream:
    """Makes the objects of a stream from the increments of one request's prompts."""

    def __init__(self, request: CompletionRequest, *, id: str, model: str, created: int) -> None:
        self._request = request
        self._head = {"id": id, "object": "text_completion", "created": created, "model": model}
        self._lengths: dict[int, int] = {}  # characters so far, by choice
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
        start = self._lengths.get(index, 0)
        self._lengths[index] = start + len(part.text)
        ids = part.token_ids if self._request.return_token_ids else None
        if not (part.text or part.finish_reason or part.logprobs or ids):
            return []
        choice = {
            "index": index,
            "text": part.text,
            "logprobs": completion_logprobs(part, self._request.params.logprobs or 0, start),
            "finish_reason": part.finish_reason,
            "stop_reason": part.stop_reason,
        }
        if ids is not None:
            choice["token_ids"] = ids
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

    def _usage(self) -> dict[str, Any]:
        prompt = sum(tokens for tokens, _ in self._prompts.values())
        cached = sum(cached for _, cached in self._prompts.values())
        return usage_counts(prompt, self._completion, cached, 0)
