"""GET /health, /version and /metrics."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp

from headrace import version
from headrace.server.endpoint import Call
from headrace.server.replies import json_reply


async def health(call: Call) -> ASGIApp:
    """200 while there is a model, else 503."""
    ready = bool(call.state.models.models)
    status = 200 if ready else 503
    return json_reply({"status": "ok" if ready else "no model"}, status)


async def show_version(call: Call) -> ASGIApp:
    return json_reply({"version": version()})


async def metrics(call: Call) -> ASGIApp:
    return Response(
        call.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
