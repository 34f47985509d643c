"""What a server takes of a request that is well-formed."""

from __future__ import annotations

from typing import Any

from headrace.protocol.chat import ChatRequest
from headrace.protocol.completions import CompletionRequest
from headrace.protocol.errors import ProtocolError
from headrace.server.config import ServerConfig


def check_chat(config: ServerConfig, request: ChatRequest) -> None:
    """Raises ProtocolError for more than the server takes, and for a template it doesn't trust."""
    check_messages(config, request.messages)
    _check_outputs(config, request.params.n)
    if not config.trust_request_chat_template and (
        request.chat_template is not None or "chat_template" in request.chat_template_kwargs
    ):
        raise ProtocolError(
            "chat_template: this server uses its models' own; start it with "
            "--trust-request-chat-template to allow others",
            "chat_template",
            "unsupported_parameter",
        )


def check_completion(config: ServerConfig, request: CompletionRequest) -> None:
    """Raises ProtocolError for more than the server takes."""
    _check_outputs(config, len(request.call_prompts()) * request.params.n)


def check_messages(config: ServerConfig, messages: list[dict[str, Any]]) -> None:
    """Raises ProtocolError for more than the server takes."""
    most = config.max_messages
    if len(messages) > most:
        raise ProtocolError(
            f"messages may have at most {most} entries, got {len(messages)}",
            "messages",
            "too_many_messages",
        )


def _check_outputs(config: ServerConfig, count: int) -> None:
    most = config.max_outputs
    if count > most:
        raise ProtocolError(
            f"n asks for {count} outputs; this server makes at most {most} for a request",
            "n",
            "too_many_outputs",
        )
