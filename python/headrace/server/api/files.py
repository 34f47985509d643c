"""/v1/files: for batches."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.types import ASGIApp

from headrace.quoting import quoted
from headrace.server.batches.files import FileStore, disk_errors
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError
from headrace.server.replies import json_reply

_PIECE = 1 << 20
_ENVELOPE = 1 << 16  # bytes of a multipart body that are not the file's


def store_of(call: Call) -> FileStore:
    """Raises ApiError (501) if this server has no folder."""
    if call.state.files is None:
        raise ApiError(
            "this server keeps no files: start it with --files-dir FOLDER", 501, code="no_files"
        )
    return call.state.files


async def upload_file(call: Call) -> ASGIApp:
    """A form with `purpose` ("batch") and `file`."""
    store = store_of(call)
    length = call.http.headers.get("content-length", "")
    too_long = ApiError(f"a file may have at most {store.max_bytes} bytes", 413, param="file")
    if not length.isdecimal():
        raise ApiError("send the file with a Content-Length", 411, code="length_required")
    if len(length) > 18 or int(length) > store.max_bytes + _ENVELOPE:
        raise too_long
    _check_form(call.http.headers.get("content-type", ""))
    seconds = call.state.config.upload_seconds
    try:
        async with call.state.uploads.place():
            file_id, name = await asyncio.wait_for(_receive(call, store), seconds)
    except asyncio.TimeoutError:
        raise ApiError(
            f"the file hasn't come within {seconds:g} s", 408, code="body_timeout"
        ) from None
    except HTTPException as error:
        raise ApiError(f"the form can't be read: {error.detail}"[:300]) from error
    with disk_errors():
        try:
            return json_reply(await asyncio.to_thread(store.add, file_id, name, "batch"))
        except Exception:  # nobody would know of it, or could delete it
            store.data(file_id).unlink(missing_ok=True)
            raise


def _check_form(content_type: str) -> None:
    """Raises ApiError. A form in another character set is read by codecs that take for ever."""
    kind, _, parameters = content_type.partition(";")
    if kind.strip().lower() != "multipart/form-data":
        raise ApiError(
            f"send a form, 'Content-Type: multipart/form-data', got {quoted(kind)}",
            415,
            code="unsupported_media_type",
        )
    charset = re.search(r"charset[^=;]*=\s*\"?([^\";]*)", parameters, re.IGNORECASE)
    if charset is not None and charset.group(1).strip().lower() not in ("utf-8", "utf8"):
        raise ApiError(
            f"a form must be in UTF-8, got charset {quoted(charset.group(1))}",
            415,
            code="unsupported_charset",
        )


async def _receive(call: Call, store: FileStore) -> tuple[str, str]:
    """The id of the file, which is there, and its name."""
    with disk_errors():
        async with call.http.form(max_files=1, max_fields=8) as form:
            unknown = sorted(set(form) - {"purpose", "file"})
            if unknown:
                raise ApiError(f"{quoted(unknown[0])} is not taken here", param=unknown[0][:200])
            if form.get("purpose") != "batch":
                raise ApiError("purpose must be batch", param="purpose")
            upload = form.get("file")
            if not isinstance(upload, UploadFile):
                raise ApiError("file must be a file", param="file")
            file_id = store.new_id("file")
            await _save(upload, store.data(file_id))
            return file_id, upload.filename or ""


async def list_files(call: Call) -> ASGIApp:
    data = await asyncio.to_thread(store_of(call).list)
    return json_reply({"object": "list", "data": data, "has_more": False})


async def get_file(call: Call) -> ASGIApp:
    file_id = call.http.path_params["id"]
    return json_reply(await asyncio.to_thread(store_of(call).read, file_id))


async def file_content(call: Call) -> ASGIApp:
    file_id = call.http.path_params["id"]
    await asyncio.to_thread(store_of(call).read, file_id)
    return FileResponse(
        store_of(call).data(file_id), media_type="application/octet-stream", filename=file_id
    )


async def delete_file(call: Call) -> ASGIApp:
    file_id = call.http.path_params["id"]
    await asyncio.to_thread(store_of(call).delete, file_id)
    return json_reply({"id": file_id, "object": "file", "deleted": True})


async def _save(upload: UploadFile, path: Path) -> None:
    try:
        with path.open("xb") as file:
            while piece := await upload.read(_PIECE):
                await asyncio.to_thread(file.write, piece)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
