"""Bodies of /v1/responses, made into requests of a chat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.chat import ChatRequest
from headrace.protocol.errors import ProtocolError
from headrace.protocol.sampling import SAMPLING_FIELDS
from headrace.quoting import quoted
from headrace.server.chat_form import read_chat_form
from headrace.server.responses.items import read_items
from headrace.server.responses.tools import ClientTools, read_client_tools

_LOGPROBS = "message.output_text.logprobs"
_HOSTED_PARTS = ("web_search_call.", "file_search_call.", "code_interpreter_call.", "computer_call")
# Fields of /v1/chat/completions that OpenAI's /v1/responses doesn't have, and other servers' have.
_SHARED = (
    "seed",
    "stop",
    "chat_template",
    "chat_template_kwargs",
    "enable_thinking",
    "mm_processor_kwargs",
    *SAMPLING_FIELDS,
)
_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


@dataclass(slots=True)
class ResponsesRequest:
    """chat: the request to run. echoed: the fields that the answer repeats. tools: the client's."""

    chat: ChatRequest
    echoed: dict[str, Any]
    tools: ClientTools


def read_responses(value: Any) -> ResponsesRequest:
    """Each field works, or is noted as one without effect, or is refused: ProtocolError."""
    body = Body(value)
    form: dict[str, Any] = {
        "model": body.text("model"),
        "messages": _messages(body),
        "max_completion_tokens": body.integer("max_output_tokens"),
        "temperature": body.number("temperature"),
        "top_p": body.number("top_p"),
        "parallel_tool_calls": body.flag("parallel_tool_calls"),
        "stream": body.flag("stream"),
        **{name: body.take(name) for name in _SHARED},
    }
    effort = _reasoning(body, form)
    text_format = _text_format(body, form)
    _logprobs(body, form)
    tools = read_client_tools(body)
    form["tools"], form["tool_choice"] = [*tools.forms.values()] or None, tools.choice
    _read_others(body)
    body.finish()
    chat = read_chat_form(form, _NAMES)
    chat.notes[:0] = body.notes
    echoed = {
        "instructions": body.text("instructions"),
        "max_output_tokens": form["max_completion_tokens"],
        "metadata": body.mapping("metadata") or {},
        "parallel_tool_calls": form["parallel_tool_calls"] is not False,
        "reasoning": {"effort": effort, "summary": None},
        "temperature": chat.params.temperature,
        "text": {"format": text_format or {"type": "text"}},
        "tool_choice": body.take("tool_choice") or "auto",
        "tools": tools.given,
        "top_p": chat.params.top_p,
    }
    return ResponsesRequest(chat, echoed, tools)


def _messages(body: Body) -> list[dict[str, Any]]:
    instructions = body.text("instructions")
    system = [] if instructions is None else [{"role": "system", "content": instructions}]
    given = body.required("input")
    if isinstance(given, str):
        return [*system, {"role": "user", "content": given}]
    return [*system, *read_items(body)]


def _reasoning(body: Body, form: dict[str, Any]) -> str | None:
    given = body.mapping("reasoning")
    if given is None:
        return None
    reasoning = Body(given, "reasoning")
    effort = form["reasoning_effort"] = reasoning.text("effort")
    for name in ("summary", "generate_summary"):
        reasoning.note(name, "thoughts come as they are")
    reasoning.finish()
    body.notes.extend(reasoning.notes)
    return effort


def _text_format(body: Body, form: dict[str, Any]) -> dict[str, Any] | None:
    given = body.mapping("text")
    if given is None:
        return None
    text = Body(given, "text")
    wanted = text.mapping("format")
    text.note("verbosity", "say in a message how long the answer should be", "medium")
    text.finish()
    body.notes.extend(text.notes)
    if wanted is None:
        return None
    if wanted.get("type") == "json_schema":
        schema = {name: value for name, value in wanted.items() if name != "type"}
        form["response_format"] = {"type": "json_schema", "json_schema": schema}
    else:
        form["response_format"] = wanted
    return wanted


def _logprobs(body: Body, form: dict[str, Any]) -> None:
    included = body.array("include") or []
    for name in included:
        if name == "reasoning.encrypted_content":
            body.notes.append(f"include: {name} has no effect: thoughts come as they are")
        elif isinstance(name, str) and name.startswith(_HOSTED_PARTS):
            body.notes.append(f"include: {name} has no effect: there is no such tool here")
        elif name != _LOGPROBS:
            raise ProtocolError(
                f"include may hold {_LOGPROBS}, got {quoted(name)}", "include", "unsupported_value"
            )
    top = body.integer("top_logprobs")
    if _LOGPROBS in included or top:
        form["logprobs"] = True
        form["top_logprobs"] = top


def _read_others(body: Body) -> None:
    body.note("store", "answers are not kept", False)
    kept = "answers are not kept; send the whole conversation as input"
    for name in ("previous_response_id", "conversation"):
        body.refuse(name, kept)
    body.refuse("prompt", "there are no stored prompts; send input")
    body.refuse("background", "answers are not kept", False)
    body.note("truncation", "an input that is too long is an error", "disabled")
    body.note("context_management", "an input that is too long is an error", [])
    body.note("client_metadata", "nothing is kept about clients", {})
    body.note("max_tool_calls", "the caller runs the tools")
    body.note("stream_options", "the last event has the token counts")
    for name in ("user", "safety_identifier", "metadata"):
        body.note(name, "nothing is kept about users", {})
    for name in ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"):
        body.note(name, "equal beginnings of prompts are found without it")
    body.note("service_tier", "there is one tier", "auto", "default")
