"""Answers of /v1/chat/completions: whole ones, and the pieces of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.llm.outputs import CompletionOutput, RequestOutput
from headrace.parsers.tool_call import ToolCall
from headrace.protocol.chat import ChatRequest
from headrace.protocol.logprobs import chat_logprobs, prompt_logprobs
from headrace.protocol.timings import Timings
from headrace.protocol.usage import usage, usage_counts
from headrace.text.tokenizer import Tokenizer


def chat_answer(
    request: ChatRequest,
    outputs: Sequence[RequestOutput],
    *,
    id: str,
    model: str,
    created: int,
    tokenizer: Tokenizer | None = None,
) -> dict[str, Any]:
    """The "chat.completion" object of the finished outputs, one choice for each.

    created: seconds since the epoch. tokenizer: the model's.
    """
    answer = {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [_choice(request, output, tokenizer) for output in outputs],
        "usage": usage(outputs),
    }
    if request.prompt_logprobs is not None:  # the outputs have the prompt in common
        answer["prompt_logprobs"] = prompt_logprobs(outputs[0], request.prompt_logprobs)
    return answer


def _choice(
    request: ChatRequest, output: RequestOutput, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    part, top = output.outputs, request.params.logprobs
    message: dict[str, Any] = {"role": "assistant", "content": part.text, "refusal": None}
    if part.reasoning_content is not None:
        message["reasoning_content"] = part.reasoning_content
    if part.tool_calls:
        message["content"] = part.text or None
        message["tool_calls"] = tool_calls(part)
    choice = {
        "index": part.index,
        "message": message,
        "logprobs": None if top is None else chat_logprobs(part, top, tokenizer),
        "finish_reason": finish_reason(part),
    }
    if request.return_token_ids:
        choice["token_ids"] = part.token_ids
        choice["prompt_token_ids"] = output.prompt_token_ids
        message |= prompt_tokens(output) | answer_tokens(part)
    return choice


def prompt_tokens(output: RequestOutput) -> dict[str, Any]:
    """FastDeploy's fields of a prompt."""
    text = output.prompt if isinstance(output.prompt, str) else None
    return {"prompt_token_ids": output.prompt_token_ids, "prompt_tokens": text}


def answer_tokens(part: CompletionOutput) -> dict[str, Any]:
    """FastDeploy's fields of an answer or an increment."""
    return {"completion_token_ids": part.token_ids, "completion_tokens": part.completion_tokens}


def finish_reason(part: CompletionOutput, called: bool = False) -> str | None:
    """OpenAI's word; `called`: earlier increments of the output had tool calls."""
    if part.finish_reason == "stop" and (called or part.tool_calls):
        return "tool_calls"
    return part.finish_reason


def tool_calls(part: CompletionOutput) -> list[Any]:
    """As dicts; more of a call's arguments has no id, type and name, as in OpenAI's streams."""
    return [_call(call) if isinstance(call, ToolCall) else call for call in part.tool_calls or ()]


def _call(call: ToolCall) -> dict[str, Any]:
    if call.continues:
        return {"index": call.index, "function": {"arguments": call.function.arguments}}
    return call.to_dict()


class ChatStream:
    """Makes the "chat.completion.chunk" objects of one request from its increments."""

    def __init__(
        self,
        request: ChatRequest,
        *,
        id: str,
        model: str,
        created: int,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """tokenizer: the model's."""
        self._request = request
        self._tokenizer = tokenizer
        self._head = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._seen: set[int] = set()  # indices that have had their first piece
        self._called: set[int] = set()  # indices with tool calls
        self._prompt = self._cached = self._completion = 0
        self._images = self._videos = 0
        self._reasoning: dict[int, int] = {}  # by index
        self._timings = Timings()

    def pieces(self, update: RequestOutput) -> list[dict[str, Any]]:
        """The objects for one increment, in order; none if it says nothing new."""
        part = update.outputs
        self._count(update)
        pieces = []
        if part.index not in self._seen:
            self._seen.add(part.index)
            first = {"role": "assistant", "content": ""}
            more = prompt_tokens(update) if self._request.return_token_ids else {}
            pieces.append(self._piece(part.index, {**first, **more}))
        delta = self._delta(part)
        reason = finish_reason(part, part.index in self._called)
        ids = part.token_ids if self._request.return_token_ids else None
        if delta or reason or part.logprobs or ids:
            piece = self._piece(part.index, delta)
            choice = piece["choices"][0]
            top = self._request.params.logprobs or 0
            choice["logprobs"] = chat_logprobs(part, top, self._tokenizer)
            choice["finish_reason"] = reason
            if ids is not None:
                choice["token_ids"] = ids
                delta |= answer_tokens(part)
            pieces.append(piece)
        return pieces

    def last_piece(self) -> dict[str, Any] | None:
        """The piece with the token counts, if it was asked for."""
        if not self._request.stream.include_usage:
            return None
        piece = {**self._head, "choices": [], "usage": self._usage()}
        if self._request.stream.include_timings:
            piece["timings"] = self._timings.counts(self._prompt, self._completion)
        return piece

    def _delta(self, part: CompletionOutput) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        if part.text:
            delta["content"] = part.text
        if part.reasoning_content:
            delta["reasoning_content"] = part.reasoning_content
        if part.tool_calls:
            self._called.add(part.index)
            delta["tool_calls"] = tool_calls(part)
        return delta

    def _piece(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        piece = {**self._head, "choices": [choice]}
        if self._request.stream.include_usage:
            piece["usage"] = self._usage() if self._request.stream.continuous_usage else None
        return piece

    def _count(self, update: RequestOutput) -> None:
        part = update.outputs
        self._timings.note(update.metrics)
        self._prompt = max(self._prompt, len(update.prompt_token_ids))
        self._images = max(self._images, update.num_input_image_tokens)
        self._videos = max(self._videos, update.num_input_video_tokens)
        if part.index == 0:
            self._cached = max(self._cached, update.num_cached_tokens)
        self._completion += len(part.token_ids)
        self._reasoning[part.index] = part.reasoning_token_num  # of the output so far

    def _usage(self) -> dict[str, Any]:
        return usage_counts(
            self._prompt,
            self._completion,
            self._cached,
            sum(self._reasoning.values()),
            self._images,
            self._videos,
        )
