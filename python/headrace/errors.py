"""Errors of the Python layer. The engine's own are `HeadraceError` and its subclasses."""

from __future__ import annotations


class EngineError(Exception):
    """A request could not be served.

    `error_code` follows HTTP: 400 for a bad request, 500 for a failure of the engine. Raised only
    by `LLM(..., raise_on_error=True)`; otherwise the same code and message are in the
    `RequestOutput` of the request.
    """

    def __init__(self, message: str, error_code: int = 400) -> None:
        super().__init__(message)
        self.error_code = error_code


class UnsupportedError(ValueError):
    """Asked for something this version doesn't do. The message says what is missing."""


class TemplateError(ValueError):
    """A chat template is missing, malformed, over a limit, or refused the conversation."""


class TokenizerError(ValueError):
    """A tokenizer file is missing, malformed, or cannot encode what it was given."""


class MediaError(ValueError):
    """An image or a video can't be fetched, decoded or processed. The message names the item."""
