"""FastDeploy's fields for prompts that chat templates don't make, or not alone."""

from __future__ import annotations

from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted


def read_ids(body: Body, name: str) -> list[int] | None:
    """Token ids; None: there are none. Raises ProtocolError."""
    ids = body.array(name)
    for token_id in ids or ():
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise ProtocolError(
                f"{name} must be an array of token ids, got {quoted(token_id)}",
                name,
                "invalid_type",
            )
    return ids or None


def read_own_prompt(
    body: Body, ids: list[int] | None, messages: list[dict[str, Any]], has_tools: bool
) -> dict[str, Any]:
    """What a dict for LLM.generate holds beside or instead of the conversation; {}: nothing.

    ids: prompt_token_ids. Takes disable_chat_template and completion_token_ids; raises
    ProtocolError.
    """
    prompt: dict[str, Any] = {}
    plain = body.flag("disable_chat_template")
    begun = read_ids(body, "completion_token_ids")
    if ids is not None:
        prompt["prompt_token_ids"] = ids
        _leave_out(body, messages)
    elif plain:
        prompt["prompt"] = _only_text(messages)
    if prompt and has_tools:
        name = "disable_chat_template" if ids is None else "prompt_token_ids"
        raise ProtocolError(
            f"tools: {name} leaves out the chat template, which would show them",
            "tools",
            "unsupported_value",
        )
    if begun is not None:
        prompt["completion_token_ids"] = begun
    return prompt


def _leave_out(body: Body, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or part.get("type") != "text":
                raise ProtocolError(
                    "prompt_token_ids: images and clips go with messages alone",
                    "prompt_token_ids",
                    "unsupported_value",
                )
    if messages:
        body.notes.append("messages has no effect: prompt_token_ids is the prompt")


def _only_text(messages: list[dict[str, Any]]) -> str:
    text = messages[0].get("content")
    if len(messages) > 1 or not isinstance(text, str) or not text:
        raise ProtocolError(
            "disable_chat_template takes one message whose content is a text: it is the prompt",
            "messages",
            "unsupported_value",
        )
    return text
