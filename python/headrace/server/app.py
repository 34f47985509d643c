"""The server as an ASGI app."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headrace.server.admission import Admission, BodyBudget, HeavyWork
from headrace.server.api import (
    batches,
    chat,
    completions,
    files,
    health,
    messages,
    models,
    ollama,
    pooling,
    responses,
    tokens,
)
from headrace.server.api.description import described, handlers
from headrace.server.auth import KeyGuard
from headrace.server.batches.files import FileStore
from headrace.server.batches.runner import BatchRunner
from headrace.server.config import ServerConfig
from headrace.server.endpoint import Access, Endpoint, Handler, Reads
from headrace.server.errors import ApiError
from headrace.server.gate import Gate
from headrace.server.metrics import Metrics
from headrace.server.models import ModelRegistry
from headrace.server.page import page_routes
from headrace.server.replies import error_reply
from headrace.server.state import ServerState

_POSTS: tuple[tuple[str, Handler, Access], ...] = (
    ("/v1/chat/completions", chat.chat_completions, "user"),
    ("/v1/completions", completions.completions, "user"),
    ("/v1/responses", responses.responses, "user"),
    ("/v1/responses/input_tokens", responses.input_tokens, "user"),
    ("/v1/messages", messages.messages, "user"),
    ("/v1/messages/count_tokens", messages.count_tokens, "user"),
    ("/v1/embeddings", pooling.embeddings, "user"),
    ("/v1/rerank", pooling.rerank, "user"),
    ("/v1/score", pooling.score, "user"),
    ("/rerank", pooling.rerank, "user"),
    ("/v2/rerank", pooling.rerank, "user"),
    ("/score", pooling.score, "user"),
    ("/tokenize", tokens.tokenize, "user"),
    ("/detokenize", tokens.detokenize, "user"),
    ("/v1/batches", batches.create_batch, "user"),
    ("/api/chat", ollama.ollama_chat, "user"),
    ("/api/generate", ollama.ollama_generate, "user"),
    ("/api/embed", ollama.ollama_embed, "user"),
    ("/api/embeddings", ollama.ollama_embeddings, "user"),
    ("/api/show", ollama.ollama_show, "user"),
    ("/v1/models/load", models.load_model, "admin"),
    ("/v1/models/unload", models.unload_model, "admin"),
    ("/v1/load_lora_adapter", models.load_adapter, "admin"),
    ("/v1/unload_lora_adapter", models.unload_adapter, "admin"),
)
_GETS: tuple[tuple[str, Handler, Access], ...] = (
    ("/health", health.health, "open"),
    ("/version", health.show_version, "user"),
    ("/metrics", health.metrics, "user"),
    ("/tokenizer_info", tokens.tokenizer_info, "user"),
    ("/v1/models", models.list_models, "user"),
    ("/v1/models/{name:path}", models.get_model, "user"),
    ("/v1/files", files.list_files, "user"),
    ("/v1/files/{id}", files.get_file, "user"),
    ("/v1/files/{id}/content", files.file_content, "user"),
    ("/v1/batches", batches.list_batches, "user"),
    ("/v1/batches/{id}", batches.get_batch, "user"),
    ("/api/tags", ollama.ollama_tags, "user"),
    ("/api/ps", ollama.ollama_ps, "user"),
    ("/api/version", ollama.ollama_version, "user"),
)
# What ollama does with its store of models; there is none here.
_REFUSED = (
    ("POST", "/api/pull"),
    ("POST", "/api/push"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("DELETE", "/api/delete"),
    ("POST", "/api/blobs/{digest}"),
)
# With bodies of their own, or none.
_OTHERS: tuple[tuple[str, str, Handler, Reads, str], ...] = (
    ("POST", "/v1/files", files.upload_file, "stream", "multipart/form-data"),
    ("DELETE", "/v1/files/{id}", files.delete_file, "nothing", ""),
    ("POST", "/v1/batches/{id}/cancel", batches.cancel_batch, "nothing", ""),
)


def create_app(config: ServerConfig, registry: ModelRegistry) -> Starlette:
    """The app that serves the registry's models; who has made the registry closes it."""
    admission = Admission(config.max_concurrency, config.max_queue)
    store = runner = None
    if config.files_dir is not None:
        store = FileStore(Path(config.files_dir), config.max_file_bytes)
        runner = BatchRunner(store, registry, config)
    state = ServerState(
        config,
        registry,
        admission,
        Admission(config.max_text_concurrency, config.max_queue),
        Admission(config.max_uploads, config.max_queue),
        HeavyWork(),
        BodyBudget(config.max_total_body_bytes),
        KeyGuard(config),
        Metrics(registry, admission),
        store,
        runner,
    )
    middleware = [Middleware(Gate, state=state)]
    if config.allowed_origins:
        cors: dict[str, Any] = {
            "allow_origins": config.allowed_origins,
            "allow_methods": ["GET", "POST", "DELETE"],
            "allow_headers": ["*"],
            "expose_headers": ["x-request-id", "x-headrace-warnings", "retry-after"],
        }
        middleware.insert(0, Middleware(CORSMiddleware, **cors))
    return Starlette(
        routes=_routes(state),
        middleware=middleware,
        exception_handlers={HTTPException: _http_error},
        lifespan=partial(_lifespan, state),
    )


@contextlib.asynccontextmanager
async def _lifespan(state: ServerState, _: Starlette) -> AsyncIterator[None]:
    if state.batches is not None:
        await state.batches.start()
    try:
        yield
    finally:
        if state.batches is not None:
            await state.batches.stop()
        state.heavy.close()


def _routes(state: ServerState) -> list[BaseRoute]:
    routes: list[BaseRoute] = [
        Route(path, Endpoint(state, path, handler, access=access, reads="json"), methods=["POST"])
        for path, handler, access in _POSTS
    ]
    routes += [
        Route(path, Endpoint(state, path, handler, access=access), methods=["GET"])
        for path, handler, access in _GETS
    ]
    rows = [
        described("POST", path, run, "application/json", access) for path, run, access in _POSTS
    ]
    rows += [described("GET", path, run, "", access) for path, run, access in _GETS]
    rows += [described(method, path, run, takes, "user") for method, path, run, _, takes in _OTHERS]
    routes += [
        Route(path, Endpoint(state, path, handler, access="open"), methods=["GET"])
        for path, handler in handlers(rows).items()
    ]
    routes += [
        Route(path, Endpoint(state, path, ollama.ollama_refused), methods=[method])
        for method, path in _REFUSED
    ]
    routes += [
        Route(path, Endpoint(state, path, run, reads=reads), methods=[method])
        for method, path, run, reads, _ in _OTHERS
    ]
    return [*routes, *(page_routes(state) if state.config.chat_page else ())]


async def _http_error(request: Request, error: Exception) -> Response:
    """Of the router: no such path, or no such method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = {
        404: "there is no such path; docs/serving.md lists those there are",
        405: f"{request.method} is not for this path",
    }.get(status, "the request can't be served")
    code = {404: "not_found", 405: "method_not_allowed"}.get(status)
    reply = error_reply(ApiError(message, status, code=code), request.url.path)
    for name, value in (getattr(error, "headers", None) or {}).items():
        reply.headers[name] = value  # Allow
    return reply
