"""What a server takes of a request that is well-formed."""

from __future__ import annotations

from typing import Any

from headrace.options.sampling_params import SamplingParams
from headrace.protocol.chat import ChatRequest
from headrace.protocol.completions import CompletionRequest
from headrace.protocol.errors import ProtocolError
from headrace.server.config import ServerConfig

_MOST_LOGPROBS = 1 << 20
_EXPECTED_TOKENS = 512  # of an output without max_tokens


def check_chat(config: ServerConfig, request: ChatRequest) -> None:
    """Raises ProtocolError for more than the server takes, and for a template it doesn't trust."""
    check_messages(config, request.messages)
    _check_outputs(config, request.params.n)
    _check_logprobs(request.params, 1, request.prompt_size)
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
    count = len(request.prompts)
    _check_outputs(config, count * request.params.n)
    _check_logprobs(request.params, count, request.prompt_size)


def check_messages(config: ServerConfig, messages: list[dict[str, Any]]) -> None:
    """Raises ProtocolError for more than the server takes."""
    most = config.max_messages
    if len(messages) > most:
        raise ProtocolError(
            f"messages may have at most {most} entries, got {len(messages)}",
            "messages",
            "too_many_messages",
        )
    parts = sum(len(one["content"]) for one in messages if isinstance(one.get("content"), list))
    if parts > 2 * most:
        raise ProtocolError(
            f"messages may have at most {2 * most} parts of content in all, got {parts}",
            "messages",
            "too_many_parts",
        )


def _check_logprobs(params: SamplingParams, prompts: int, size: int) -> None:
    """size: about how many tokens the prompts have."""
    asked = 0
    if params.logprobs is not None:
        tokens = params.max_tokens or _EXPECTED_TOKENS
        asked = prompts * params.n * tokens * (params.logprobs + 1)
    if params.prompt_logprobs is not None:
        asked += params.n * size * (params.prompt_logprobs + 1)
    if asked > _MOST_LOGPROBS:
        raise ProtocolError(
            f"n, max_tokens, logprobs and prompt_logprobs ask for {asked} log-probabilities; this "
            f"server gives at most {_MOST_LOGPROBS} in an answer",
            "logprobs",
            "too_many_logprobs",
        )


def _check_outputs(config: ServerConfig, count: int) -> None:
    most = config.max_outputs
    if count > most:
        raise ProtocolError(
            f"n asks for {count} outputs; this server makes at most {most} for a request",
            "n",
            "too_many_outputs",
        )
