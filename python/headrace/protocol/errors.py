"""Errors in OpenAI's shape."""

from __future__ import annotations

from typing import Any

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class ProtocolError(ValueError):
    """A request that can't be served as it stands.

    param: the field it is about, as a path such as "messages[2].role"; None: the whole body.
    code: "unknown_parameter", "unsupported_parameter", "unsupported_value",
        "missing_required_parameter", "invalid_type" or "invalid_value".
    status: what HTTP calls it.
    """

    def __init__(
        self, message: str, param: str | None = None, code: str = "invalid_value", status: int = 400
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status

    def body(self) -> dict[str, Any]:
        """{"error": {...}}"""
        return error_body(self.status, str(self), self.param, self.code)


def error_body(
    status: int, message: str, param: str | None = None, code: str | int | None = None
) -> dict[str, Any]:
    """{"error": {...}} for any status; `code` is the status itself if there is none better."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {
        "error": {
            "message": message,
            "type": kind,
            "param": param,
            "code": status if code is None else code,
        }
    }
