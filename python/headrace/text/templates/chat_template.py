"""Chat templates: which one applies, and rendering it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from headrace._core import ChatTemplate, HeadraceError
from headrace.errors import TemplateError, TokenizerError
from headrace.quoting import quoted, shortened
from headrace.text.model_files import SPECIAL_TOKEN_KEYS, read_text

_KEPT_CHARS = 1 << 16  # a compiled template takes some 30 times its text
_UNSUPPORTED = "unsupported"  # the code of the core's error

# What a caller's chat_template_kwargs may not replace.
RESERVED_VARIABLES = frozenset(
    {
        "messages",
        "conversation",
        "tools",
        "tokenize",
        "raise_exception",
        "strftime_now",
        "range",
        "namespace",
        *SPECIAL_TOKEN_KEYS,
    }
)


def load_chat_template(source: str | None) -> str | None:
    """The template a user gave: the path of a file, or the template itself.

    Raises ValueError for what looks like a path but can't be opened.
    """
    if source is None:
        return None
    try:
        text = read_text(Path(source))
        reason = "there is no such file"
    except (TokenizerError, OSError, ValueError) as error:  # also: no name that a file can have
        text, reason = None, str(error)
    if text is not None:
        return text
    if any(mark in source for mark in "{}\n"):
        return source
    raise ValueError(
        f"The supplied chat template ({shortened(source)}) looks like a file path, "
        f"but it failed to be opened. Reason: {shortened(reason)}"
    )


def find_template(templates: Mapping[str, str], wanted: str | None, with_tools: bool) -> str:
    """`wanted` (text, or a name in `templates`), else the folder's template for this use."""
    if wanted is not None:
        return templates.get(wanted, wanted)
    if with_tools and "tool_use" in templates:
        return templates["tool_use"]
    if "default" in templates:
        return templates["default"]
    if templates:
        names = ", ".join(sorted(templates))
        raise TemplateError(f"This model has no default chat_template; choose one of: {names}.")
    raise TemplateError("This model does not support chat_template.")


def checked_variables(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of chat_template_kwargs, with `enable_thinking` true unless given.

    Raises ValueError if it is no dict or touches what the engine itself provides.
    """
    if kwargs is None:
        return {"enable_thinking": True}
    if not isinstance(kwargs, dict):
        raise ValueError("Invalid input: chat_template_kwargs must be a dict")
    for name in kwargs:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"chat_template_kwargs: {quoted(name)} is not a variable name")
        if name in RESERVED_VARIABLES:
            raise ValueError(f"chat_template_kwargs: {quoted(name)} is set by the engine")
    return {"enable_thinking": True, **kwargs}


def render_template(template: str, variables: Mapping[str, Any]) -> str:
    """Renders with bounds on memory and steps; other threads go on meanwhile.

    Raises TemplateError for every failure of the template.
    """
    compiled = _compiled(template)
    if isinstance(compiled, str):
        return _process(compiled).render(template, variables)
    try:
        return compiled.render(dict(variables))
    except HeadraceError as error:
        if error.code != _UNSUPPORTED:
            raise TemplateError(str(error)) from None
        reason = str(error)
    return _process(reason).render(template, variables)


def template_variables(template: str) -> frozenset[str]:
    """The names of the variables that a template reads. Raises TemplateError."""
    compiled = _compiled(template)
    if isinstance(compiled, str):
        return _process(compiled).variables_read(template)
    return frozenset(compiled.variables())


def _compiled(template: str) -> ChatTemplate | str:
    """What is unsupported in it, if it can't be compiled for that. Raises TemplateError."""
    return _kept(template) if len(template) <= _KEPT_CHARS else _compile(template)


def _compile(template: str) -> ChatTemplate | str:
    try:
        return ChatTemplate(template)
    except HeadraceError as error:
        if error.code == _UNSUPPORTED:
            return str(error)
        raise TemplateError(str(error)) from None
    except UnicodeEncodeError as error:
        raise TemplateError(
            f"the chat template has a lone surrogate at character {error.start}: UTF-8 has none"
        ) from None


_kept = lru_cache(maxsize=32)(_compile)


class _Renderer(Protocol):
    def render(self, template: str, variables: Mapping[str, Any]) -> str: ...
    def variables_read(self, template: str) -> frozenset[str]: ...


def _process(reason: str) -> _Renderer:
    """What renders with jinja2 in a process of its own. Raises TemplateError without jinja2.

    reason: why it has to.
    """
    if find_spec("jinja2") is None:
        raise TemplateError(f"{reason}; jinja2 may render it: pip install 'headrace[jinja2]'")
    from headrace.text.templates import process

    return process
