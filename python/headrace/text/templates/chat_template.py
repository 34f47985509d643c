"""Chat templates: which one applies, and rendering it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from headrace.errors import TemplateError, TokenizerError
from headrace.quoting import quoted, shortened
from headrace.text.model_files import SPECIAL_TOKEN_KEYS, read_text

MAX_TEMPLATE_CHARS = 1 << 20

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
    """Renders in a sandbox, in a process with bounds on memory and time (see process.py).

    Raises TemplateError for every failure of the template.
    """
    _check_size(template)
    from headrace.text.templates.process import render

    return render(template, variables)


@lru_cache(maxsize=32)
def template_variables(template: str) -> frozenset[str]:
    """The names of the variables that a template reads. Raises TemplateError."""
    _check_size(template)
    from headrace.text.templates.process import variables_read

    return variables_read(template)


def _check_size(template: str) -> None:
    if len(template) > MAX_TEMPLATE_CHARS:
        raise TemplateError(
            f"the chat template has more than the {MAX_TEMPLATE_CHARS} characters allowed"
        )
