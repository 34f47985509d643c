"""GET /health, /version and /metrics."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp

from headrace import version
from headrace.server.endpoint import Call
from headrace.server.replies import json_reply


async def health(call: Call) -> ASGIApp:
    """200 while there are models and each of them answers, else 503."""
    models = call.state.models.models
    stuck = call.state.config.stuck_seconds
    wrong = {model.names[0]: why for model in models if (why := model.pulse.wrong(stuck))}
    if not models:
        return json_reply({"status": "no model"}, 503)
    if wrong:
        return json_reply({"status": "failed", "models": wrong}, 503)
    return json_reply({"status": "ok"})


async def show_version(call: Call) -> ASGIApp:
    return json_reply({"version": version()})


async def metrics(call: Call) -> ASGIApp:
    return Response(
        call.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
