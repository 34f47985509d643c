"""How a request's prompt begins, for whoever looks for others that begin alike."""

from __future__ import annotations

import json

_MOST_CHARS = 4096
_IN_ORDER = ("system", "instructions", "tools", "messages", "input", "prompt")


def beginning_of(path: str, body: bytes) -> str:
    """The path and the first characters of what a body puts before the model.

    A body that can't be read gives the path: whoever answers it says what is wrong.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return path
    if not isinstance(value, dict):
        return path
    parts = [path]
    for name in _IN_ORDER:
        given = value.get(name)
        if given:
            parts.append(given if isinstance(given, str) else json.dumps(given))
    return "\n".join(parts)[:_MOST_CHARS]
