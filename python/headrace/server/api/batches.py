"""/v1/batches over the files of /v1/files."""

from __future__ import annotations

from starlette.types import ASGIApp

from headrace.protocol.body import Body
from headrace.server.api.files import store_of
from headrace.server.batches.runner import BatchRunner
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError
from headrace.server.replies import json_reply

_ENDPOINTS = ("/v1/chat/completions", "/v1/completions")


async def create_batch(call: Call) -> ASGIApp:
    runner = _runner(call)
    body = Body(call.body)
    for name in ("input_file_id", "endpoint", "completion_window"):
        body.required(name)
    file_id = body.text("input_file_id") or ""
    endpoint = body.choice("endpoint", _ENDPOINTS) or ""
    body.choice("completion_window", ("24h",))
    metadata = body.mapping("metadata") or {}
    body.refuse("output_expires_after", "files stay until they are deleted")
    body.finish()
    if len(metadata) > 16 or any(len(str(value)) > 512 for value in metadata.values()):
        raise ApiError("metadata may have 16 entries of 512 characters", param="metadata")
    return json_reply(await runner.create(file_id, endpoint, metadata))


async def list_batches(call: Call) -> ASGIApp:
    data = await _runner(call).list()
    return json_reply({"object": "list", "data": data, "has_more": False})


async def get_batch(call: Call) -> ASGIApp:
    return json_reply(await _runner(call).read(call.http.path_params["id"]))


async def cancel_batch(call: Call) -> ASGIApp:
    return json_reply(await _runner(call).cancel(call.http.path_params["id"]))


def _runner(call: Call) -> BatchRunner:
    store_of(call)
    if call.state.batches is None:
        raise ApiError("this server runs no batches", 501, code="no_files")
    return call.state.batches
