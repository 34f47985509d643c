"""What a row asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.batch.rows import Row
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
_MISSING = {
    "/v1/embeddings": ": use headrace embed --jsonl",
    "/v1/responses": ": write it as a chat",
}
_MOST_ID_CHARS = 512


@dataclass(slots=True)
class Task:
    """A request of a batch job.

    number: of its row. custom_id: the caller's, or one made from the number.
    url: CHAT or COMPLETIONS. body: as the protocol has it. units, size: see Row.
    """

    number: int
    custom_id: str
    url: str
    body: dict[str, Any]
    units: int = 0
    size: int = 0


def custom_id_of(row: Row) -> str | None:
    """What the row calls itself; None if it doesn't, or not by a string."""
    given = None if row.value is None else row.value.get("custom_id")
    return given if isinstance(given, str) else None


def read_task(row: Row, defaults: Mapping[str, Any]) -> Task:
    """`row` has a value: OpenAI's batch line (custom_id, method, url, body), or a body itself,
    with "messages" or "prompt" and a custom_id if it likes.

    defaults: fields that every body has which doesn't say otherwise.

    Raises ProtocolError.
    """
    value = dict(row.value or {})
    custom_id = _custom_id(value.pop("custom_id", None), row.number)
    if not ({"url", "body", "method"} & value.keys()):
        url = CHAT if value.get("messages") is not None else COMPLETIONS
        if url == COMPLETIONS and value.get("prompt") is None:
            raise _error("messages or prompt is missing", "prompt", "missing_required_parameter")
        return Task(row.number, custom_id, url, _with(defaults, value), row.units, row.size)
    method, url, body = (value.pop(name, None) for name in ("method", "url", "body"))
    if method not in (None, "POST"):
        raise _error(f"method must be POST, got {quoted(method)}", "method")
    if not isinstance(url, str) or url not in (CHAT, COMPLETIONS):
        why = _MISSING.get(url, "") if isinstance(url, str) else ""
        known = f"url must be {CHAT} or {COMPLETIONS}"
        raise _error(f"{known}, got {quoted(url)}{why}", "url", "unsupported_value")
    if not isinstance(body, dict):
        raise _error(f"body must be an object, got {quoted(body)}", "body", "invalid_type")
    if value:
        name = min(value)
        raise _error(f"unknown field {quoted(name)}", name[:200], "unknown_parameter")
    return Task(row.number, custom_id, url, _with(defaults, body), row.units, row.size)


def _with(defaults: Mapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    whole = {**defaults, **body}
    if body.get("max_completion_tokens") is not None and body.get("max_tokens") is None:
        whole.pop("max_tokens", None)  # another name for the same
    return whole


def _custom_id(given: Any, number: int) -> str:
    if given is None:
        return f"request-{number}"
    if not isinstance(given, str) or not 0 < len(given) <= _MOST_ID_CHARS:
        raise _error(
            f"custom_id must be a string of 1 to {_MOST_ID_CHARS} characters, got {quoted(given)}",
            "custom_id",
        )
    return given


def _error(message: str, param: str, code: str = "invalid_value") -> ProtocolError:
    return ProtocolError(message, param, code)
