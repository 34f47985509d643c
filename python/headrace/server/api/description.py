"""The paths of the API, described for programs (/openapi.json) and for people (/docs)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from starlette.responses import HTMLResponse
from starlette.types import ASGIApp

from headrace import version
from headrace.server.endpoint import Call, Handler
from headrace.server.replies import json_reply

_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
_STYLE = "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
_STYLE += "td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}"


class Described(NamedTuple):
    """One path with one method. takes: the media type of its body, "" for none."""

    method: str
    path: str
    says: str
    takes: str
    access: str


def described(method: str, path: str, handler: Handler, takes: str, access: str) -> Described:
    """With the handler's docstring as what it says."""
    words = " ".join((handler.__doc__ or handler.__name__.replace("_", " ")).split())
    return Described(method, path.replace(":path}", "}"), words, takes, access)


def openapi(rows: Iterable[Described]) -> dict[str, Any]:
    """The document. What bodies hold is that of the APIs that the server speaks, which say it
    themselves: docs/serving.md names what of them there is."""
    paths: dict[str, Any] = {}
    for row in rows:
        operation: dict[str, Any] = {
            "summary": row.says,
            "responses": {"200": {"description": "the answer"}, "4XX": {"description": "an error"}},
        }
        names = re.findall(r"\{(\w+)\}", row.path)
        if names:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ]
        if row.takes:
            content = {row.takes: {"schema": {"type": "object"}}}
            operation["requestBody"] = {"required": True, "content": content}
        if row.access != "open":
            operation["security"] = [{"key": []}]
        paths.setdefault(row.path, {})[row.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": version()},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def page(rows: Iterable[Described]) -> str:
    """The same as a page that needs nothing else."""
    lines = "".join(
        f"<tr><td>{row.method}</td><td><code>{html.escape(row.path)}</code></td>"
        f"<td>{html.escape(row.says)}</td></tr>"
        for row in rows
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Headrace: the API</title>'
        f"<style>{_STYLE}</style><h1>Headrace {html.escape(version())}</h1>"
        '<p>The paths of this server; <a href="openapi.json">openapi.json</a> has them for '
        f"programs.</p><table><tr><th>method</th><th>path</th><th></th></tr>{lines}</table></html>"
    )


def handlers(rows: Iterable[Described]) -> dict[str, Handler]:
    """By path."""
    known = list(rows)
    document, text = openapi(known), page(known)

    async def show_document(_: Call) -> ASGIApp:
        return json_reply(document)

    async def show_page(_: Call) -> ASGIApp:
        return HTMLResponse(text, headers=_HEADERS)

    return {"/openapi.json": show_document, "/docs": show_page}
