"""Bodies of /v1/messages, made into requests of a chat."""

from __future__ import annotations

import re
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.chat import ChatRequest
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted
from headrace.server.anthropic.blocks import read_conversation, read_texts
from headrace.server.chat_form import read_chat_form, tool_form

_NAMES = {
    "stop": "stop_sequences",
    "response_format.json_schema": "output_config.format",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
}
_EFFORTS = {"max": "xhigh"}
# A name and a date, such as web_search_20250305.
_HOSTED = re.compile(
    r"(web_search|web_fetch|code_execution|bash|text_editor|computer|memory|mcp_toolset|advisor|"
    r"tool_search_tool_regex|tool_search_tool_bm25)(_\d{8})?"
)


def read_anthropic(value: Any, counting: bool = False) -> ChatRequest:
    """Each field works, or is noted as one without effect, or is refused: ProtocolError.

    counting: it is a body of /v1/messages/count_tokens, which has no max_tokens.
    """
    body = Body(value)
    body.required("model")
    if not counting:
        body.required("max_tokens")
    form: dict[str, Any] = {
        "model": body.text("model"),
        "messages": [*_system(body), *read_conversation(body)],
        "max_tokens": body.integer("max_tokens"),
        "stop": body.array("stop_sequences"),
        "stream": body.flag("stream"),
        "temperature": body.number("temperature"),
        "top_p": body.number("top_p"),
        "top_k": body.integer("top_k"),
    }
    last = form["messages"][-1:]
    if last and last[0]["role"] == "assistant" and "tool_calls" not in last[0]:
        form["continue_final_message"] = True  # the answer is begun, and goes on
    _tools(body, form)
    _thinking(body, form)
    _output(body, form)
    body.note("metadata", "nothing is kept about users", {})
    body.note("service_tier", "there is one tier", "auto", "standard_only")
    body.note("cache_control", "equal beginnings of prompts are found without it")
    body.note("container", "the server runs no code")
    body.note("mcp_servers", "the server calls nobody; run the tools yourself", [])
    body.note("context_management", "the conversation is read as it is sent", {})
    body.note("speed", "there is one speed", "standard")
    for name in ("thread", "diagnostics", "user_profile_id"):
        body.note(name, "nothing is kept about conversations and users")
    body.note("inference_geo", "the engine runs where the server does")
    for name in ("betas", "anthropic_beta"):
        body.note(name, "what works does so without it", [])
    body.finish()
    chat = read_chat_form(form, _NAMES)
    chat.notes[:0] = body.notes
    return chat


def _system(body: Body) -> list[dict[str, Any]]:
    given = body.take("system")
    if given is None:
        return []
    text = given if isinstance(given, str) else read_texts(body, "system")
    return [{"role": "system", "content": text}]


def _tools(body: Body, form: dict[str, Any]) -> None:
    given = body.array("tools") or []
    forms = [_tool(item, f"tools[{i}]", body.notes) for i, item in enumerate(given)]
    form["tools"] = [tool for tool in forms if tool is not None] or None
    choice = body.mapping("tool_choice")
    if choice is None:
        return
    chosen = Body(choice, "tool_choice")
    chosen.required("type")
    kind = chosen.choice("type", ("auto", "any", "tool", "none"))
    if kind == "tool":
        chosen.required("name")
        form["tool_choice"] = {"type": "function", "function": {"name": chosen.text("name")}}
    else:
        form["tool_choice"] = "required" if kind == "any" else kind
    if chosen.flag("disable_parallel_tool_use"):
        form["parallel_tool_calls"] = False
    chosen.finish()


def _tool(value: Any, path: str, notes: list[str]) -> dict[str, Any] | None:
    """None: it is one that Anthropic's servers run, or that their models know by heart."""
    tool = Body(value, path)
    kind = tool.text("type")
    if kind not in (None, "custom"):
        if not _HOSTED.fullmatch(kind):
            raise ProtocolError(
                f"{path}.type must be custom, or one of Anthropic's own tools, got {quoted(kind)}",
                f"{path}.type",
                "unsupported_value",
            )
        notes.append(f"{path} is left out: {kind} is a tool of the vendor's servers")
        return None
    tool.required("name")
    tool.required("input_schema")
    form = tool_form(tool.text("name"), tool.text("description"), tool.mapping("input_schema"))
    tool.flag("strict")  # arguments keep to the schema wherever a call is constrained
    tool.note("cache_control", "equal beginnings of prompts are found without it")
    tool.note("defer_loading", "the model sees all tools from the start", False)
    tool.note("eager_input_streaming", "arguments come as they are written", False)
    tool.note("input_examples", "put them into the description", [])
    tool.note("allowed_callers", "the model alone calls tools", ["direct"])
    tool.finish()
    notes.extend(tool.notes)
    return form


def _thinking(body: Body, form: dict[str, Any]) -> None:
    given = body.mapping("thinking")
    if given is None:
        return
    thinking = Body(given, "thinking")
    thinking.required("type")
    kind = thinking.choice("type", ("enabled", "disabled", "adaptive"))
    form["enable_thinking"] = kind != "disabled"
    form["reasoning_max_tokens"] = thinking.integer("budget_tokens")
    thinking.note("display", "thoughts come as they are")
    thinking.finish()
    body.notes.extend(thinking.notes)


def _output(body: Body, form: dict[str, Any]) -> None:
    formats = [body.mapping("output_format")]
    given = body.mapping("output_config")
    if given is not None:
        config = Body(given, "output_config")
        effort = config.text("effort")
        form["reasoning_effort"] = _EFFORTS.get(effort or "", effort)
        formats.append(config.mapping("format"))
        config.note("task_budget", "max_tokens is the only budget")
        config.finish()
        body.notes.extend(config.notes)
    for wanted in filter(None, formats):
        chosen = Body(wanted, "output_config.format")
        chosen.required("type")
        chosen.choice("type", ("json_schema",))
        chosen.required("schema")
        schema = {"name": "output", "schema": chosen.mapping("schema")}
        form["response_format"] = {"type": "json_schema", "json_schema": schema}
        chosen.finish()
