"""POST /v1/embeddings, which this version can't serve."""

from __future__ import annotations

from starlette.types import ASGIApp

from headrace.protocol.body import Body
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError


async def embeddings(call: Call) -> ASGIApp:
    """Raises ApiError: 404 for an unknown model, else 501."""
    call.state.models.find(Body(call.body).text("model"))
    raise ApiError(
        "this version of Headrace generates text only: its engine has no pooled outputs yet, "
        "which embeddings are made of",
        501,
        code="unsupported",
    )
