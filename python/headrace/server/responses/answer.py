"""Answers of /v1/responses, built from increments, with the events that tell of each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from headrace import RequestOutput
from headrace.protocol.logprobs import chat_logprobs
from headrace.server.answer_parts import Counts, PartDelta, part_deltas
from headrace.server.errors import ApiError
from headrace.server.responses.request import ResponsesRequest
from headrace.server.responses.tools import custom_input
from headrace.text.tokenizer import Tokenizer

Event = dict[str, Any]


class ResponseBuilder:
    """The "response" object of one request. `feed`, `finish` and `fail` give the events that a
    stream sends; `response` is the object as it stands."""

    def __init__(
        self,
        request: ResponsesRequest,
        *,
        id: str,
        model: str,
        created: int,
        tokenizer: Tokenizer | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._top_logprobs = request.chat.params.logprobs
        self._tools = request.tools
        self._arguments = ""  # of a custom tool's call that is being written
        self._counts = Counts()
        self._number = 0
        self._part: tuple[str, int] | None = None  # kind and index of the item being written
        self.response: dict[str, Any] = {
            "id": id,
            "object": "response",
            "created_at": created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            "usage": None,
            **request.echoed,
        }

    def start(self) -> Iterator[Event]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response={**self.response})

    def feed(self, update: RequestOutput) -> Iterator[Event]:
        self._counts.add(update)
        logprobs = self._logprobs(update)
        for delta in part_deltas(update):
            if self._part != (delta.kind, delta.index):
                yield from self._close()
                yield from self._open(delta)
            yield from self._extend(delta, logprobs)
        self._reason = update.outputs.finish_reason

    def finish(self) -> Iterator[Event]:
        """The end of an answer; the last event holds all of it."""
        cut = self._reason == "length"
        yield from self._close("incomplete" if cut else "completed")
        status = self.response["status"] = "incomplete" if cut else "completed"
        if cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        counts = self._counts
        self.response["usage"] = {
            "input_tokens": counts.prompt,
            "input_tokens_details": {
                "cached_tokens": counts.cached,
                "image_tokens": counts.images,
                "video_tokens": counts.videos,
            },
            "output_tokens": counts.generated,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning},
            "total_tokens": counts.prompt + counts.generated,
        }
        yield self._event(f"response.{status}", response=self.response)

    def fail(self, error: ApiError) -> Event:
        """The last event of an answer that breaks off."""
        self.response["status"] = "failed"
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        code = "context_length_exceeded" if error.code == "context_length_exceeded" else code
        self.response["error"] = {"code": code, "message": str(error)}
        return self._event("response.failed", response=self.response)

    def _open(self, delta: PartDelta) -> Iterator[Event]:
        self._part = (delta.kind, delta.index)
        item: dict[str, Any] = {"status": "in_progress"}
        part: dict[str, Any] | None = None
        if delta.kind == "tool":
            item |= self._call(delta)
        elif delta.kind == "text":
            item |= {"type": "message", "id": f"msg_{uuid.uuid4().hex}", "role": "assistant"}
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        else:
            item |= {"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": []}
            part = {"type": "reasoning_text", "text": ""}
        if part is not None:
            item["content"] = []
        self.response["output"].append(item)
        yield self._item_event("response.output_item.added", item={**item})
        if part is not None:
            item["content"] = [part]
            yield self._part_event("response.content_part.added", part={**part})

    def _call(self, delta: PartDelta) -> dict[str, Any]:
        """The item of a call that begins."""
        shown = delta.name or ""
        space, name = self._tools.namespaces.get(shown, (None, shown))
        names = {"call_id": delta.call_id or f"call_{uuid.uuid4().hex}", "name": name}
        if space is not None:
            names["namespace"] = space
        if shown in self._tools.custom:
            self._arguments = ""
            return {
                "type": "custom_tool_call",
                "id": f"ctc_{uuid.uuid4().hex}",
                **names,
                "input": "",
            }
        return {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", **names, "arguments": ""}

    def _extend(self, delta: PartDelta, logprobs: list[Any]) -> Iterator[Event]:
        item = self.response["output"][-1]
        if item["type"] == "custom_tool_call":
            self._arguments += delta.text
            return
        if delta.kind == "tool":
            item["arguments"] += delta.text
            if delta.text:
                yield self._id_event("response.function_call_arguments.delta", delta=delta.text)
            return
        part = item["content"][0]
        part["text"] += delta.text
        if delta.kind == "reasoning":
            yield self._part_event("response.reasoning_text.delta", delta=delta.text)
            return
        part["logprobs"] += logprobs
        yield self._part_event("response.output_text.delta", delta=delta.text, logprobs=logprobs)

    def _close(self, status: str = "completed") -> Iterator[Event]:
        if self._part is None:
            return
        kind, self._part = self._part[0], None
        item = self.response["output"][-1]
        item["status"] = status
        if item["type"] == "custom_tool_call":
            # The input is known when the JSON around it is whole.
            text = item["input"] = custom_input(self._arguments)
            yield self._id_event("response.custom_tool_call_input.delta", delta=text)
            yield self._id_event("response.custom_tool_call_input.done", input=text)
        elif kind == "tool":
            yield self._id_event(
                "response.function_call_arguments.done",
                name=item["name"],
                arguments=item["arguments"],
            )
        else:
            part = item["content"][0]
            name = "output_text" if kind == "text" else "reasoning_text"
            more = {"logprobs": part["logprobs"]} if kind == "text" else {}
            yield self._part_event(f"response.{name}.done", text=part["text"], **more)
            yield self._part_event("response.content_part.done", part=part)
        yield self._item_event("response.output_item.done", item=item)

    def _logprobs(self, update: RequestOutput) -> list[Any]:
        if self._top_logprobs is None:
            return []
        read = chat_logprobs(update.outputs, self._top_logprobs, self._tokenizer) or {"content": []}
        content: list[Any] = read["content"]
        return content

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def _item_event(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, output_index=len(self.response["output"]) - 1, **fields)

    def _id_event(self, kind: str, **fields: Any) -> Event:
        return self._item_event(kind, item_id=self.response["output"][-1]["id"], **fields)

    def _part_event(self, kind: str, **fields: Any) -> Event:
        return self._id_event(kind, content_index=0, **fields)
