"""What a client is told when a request is refused or fails."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from headrace.protocol.errors import ProtocolError, error_body

logger = logging.getLogger("headrace.server")

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


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
        if not path.startswith("/v1/messages"):
            return error_body(self.status, str(self), self.param, self.code)
        default = "api_error" if self.status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(self.status, default)
        return {"type": "error", "error": {"type": kind, "message": str(self)}}


def no_memory() -> ApiError:
    return ApiError("the server has no memory for this request: try again", 503, code="no_memory")


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
