"""What a client is told when a request is refused or fails."""

from __future__ import annotations

import logging
import re
import traceback
from typing import Any

from headrace.protocol.errors import ProtocolError, error_body

logger = logging.getLogger("headrace.server")

OLLAMA = "/api/"  # below it is ollama's API
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
# What the engine says, with the prompt's length and the model's.
_TOO_MANY = re.compile(r"Length of input token\((\d+)\) exceeds the limit max_model_len\((\d+)\)")
_NO_ROOM = re.compile(r"length of prompt token\((\d+)\) \+ min_dec_len \((\d+)\) > \D+\((\d+)\)")
_TOO_MANY_BYTES = re.compile(r"it has (\d+) bytes, and (\d+) tokens, .* hold at most (\d+)")


class ApiError(Exception):
    """A request that is refused or has failed.

    status: of HTTP. param: the field of the body that is wrong. code: a stable word for programs.
    retry_after: seconds after which to try again.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @classmethod
    def of(cls, error: ProtocolError) -> ApiError:
        return cls(str(error), error.status, param=error.param, code=error.code)

    def headers(self) -> dict[str, str]:
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return {**headers, **({"www-authenticate": "Bearer"} if self.status == 401 else {})}

    def body(self, path: str) -> dict[str, Any]:
        """The JSON object for a client of the API that `path` belongs to."""
        if path.startswith(OLLAMA):
            return {"error": str(self)}
        if not path.startswith("/v1/messages"):
            return error_body(self.status, str(self), self.param, self.code)
        default = "api_error" if self.status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(self.status, default)
        return {"type": "error", "error": {"type": kind, "message": str(self)}}


def no_memory() -> ApiError:
    return ApiError("the server has no memory for this request: try again", 503, code="no_memory")


class ContextLengthExceeded(ApiError):
    """tokens: of the prompt, or the fewest that it can have. most: of the model."""

    def __init__(self, tokens: int, most: int) -> None:
        super().__init__(
            f"This model's maximum context length is {most} tokens. However, the prompt has "
            f"{tokens} tokens, with the least to be generated. Please reduce its length.",
            code="context_length_exceeded",
        )
        self._anthropic = f"prompt is too long: {tokens} tokens > {most} maximum"

    def body(self, path: str) -> dict[str, Any]:
        made = super().body(path)
        if path.startswith("/v1/messages"):
            made["error"]["message"] = self._anthropic
        return made


def context_length_error(message: str) -> ApiError | None:
    """The error for a message of the engine that says that a prompt is too long; else None."""
    if found := _TOO_MANY.search(message):
        return ContextLengthExceeded(int(found[1]), int(found[2]))
    if found := _NO_ROOM.search(message):
        return ContextLengthExceeded(int(found[1]) + int(found[2]), int(found[3]))
    if found := _TOO_MANY_BYTES.search(message):
        size, most, held = map(int, found.groups())
        return ContextLengthExceeded(max(size * most // held, most + 1), most)
    return None


def internal_error(request_id: str, error: Exception) -> ApiError:
    """For a request at which the server itself has failed; the log gets where."""
    # Where, not what: the message may quote a prompt.
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    logger.error("%s %s in\n%s", request_id, type(error).__name__, frames)
    return ApiError(
        f"the server failed at this request; its log has more under {request_id}",
        500,
        code="internal_error",
    )
