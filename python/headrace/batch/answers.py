"""A body in, OpenAI's answer out: what a job needs of an engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.batch.tasks import CHAT
from headrace.llm.outputs import RequestOutput
from headrace.protocol.chat import ChatRequest, read_chat
from headrace.protocol.chat_answer import chat_answer
from headrace.protocol.completion_answer import completion_answer
from headrace.protocol.completions import CompletionRequest, read_completion
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted
from headrace.text.tokenizer import Tokenizer


@dataclass(slots=True)
class Answer:
    """status: as HTTP's. body: OpenAI's object, or {"error": ...}.

    request_id: new for each. notes: fields of the request that had no effect.
    """

    status: int
    body: dict[str, Any]
    request_id: str
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[int, int]:
        """Of the prompt and of the output."""
        usage = self.body.get("usage") or {}
        return usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)


class Answerer(Protocol):
    """Whoever answers bodies. Answers come for bad bodies too; exceptions end the job."""

    async def answer(self, url: str, body: dict[str, Any]) -> Answer: ...


class Engine(Protocol):
    """An engine as LocalAnswerer uses it: the whole outputs of a request, n for each prompt."""

    @property
    def tokenizer(self) -> Tokenizer | None: ...

    async def chat(self, request: ChatRequest) -> Sequence[RequestOutput]: ...

    async def generate(self, request: CompletionRequest) -> Sequence[RequestOutput]: ...


class LocalAnswerer:
    """Answers by an engine of this process."""

    def __init__(self, engine: Engine, names: Sequence[str]) -> None:
        """`names`: what bodies may call the model; the first is what answers call it."""
        self._engine = engine
        self._names = names

    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        """Never raises for a bad body."""
        key = uuid.uuid4().hex
        request_id = f"req_{key}"
        head: dict[str, Any] = {
            "model": self._names[0],
            "created": int(time.time()),
            "tokenizer": self._engine.tokenizer,
        }
        try:
            if url == CHAT:
                chat = read_chat(body)
                _check(chat, self._names)
                outputs = await self._engine.chat(chat)
                _check_outputs(outputs)
                made = chat_answer(chat, outputs, id=f"chatcmpl-{key}", **head)
                return Answer(200, made, request_id, tuple(chat.notes))
            completion = read_completion(body)
            _check(completion, self._names)
            outputs = await self._engine.generate(completion)
            _check_outputs(outputs)
            made = completion_answer(completion, outputs, id=f"cmpl-{key}", **head)
            return Answer(200, made, request_id, tuple(completion.notes))
        except ProtocolError as error:
            return Answer(error.status, error.body(), request_id)


def _check(request: ChatRequest | CompletionRequest, names: Collection[str]) -> None:
    if request.model is not None and request.model not in names:
        raise ProtocolError(
            f"model: there is no {quoted(request.model)}, only {', '.join(map(quoted, names))}",
            "model",
            "model_not_found",
            404,
        )
    if request.stream.wanted:
        raise ProtocolError(
            "stream: the results of a batch job are whole", "stream", "unsupported_value"
        )


def _check_outputs(outputs: Sequence[RequestOutput]) -> None:
    """If one of the outputs has failed, the whole request has."""
    for output in outputs:
        if output.error_code != 200:
            message = output.error_msg or "the request failed"
            raise ProtocolError(message, None, "engine_error", output.error_code)
