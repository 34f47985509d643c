"""How OpenAI's streams end."""

from __future__ import annotations

from headrace.server.errors import ApiError
from headrace.server.replies import event

DONE = b"data: [DONE]\n\n"


def failed_event(error: ApiError) -> bytes:
    return event(error.body("")) + DONE
