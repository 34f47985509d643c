"""Chat templates that the engine's own interpreter can't run, with jinja2 in another process.

A template comes with a checkpoint: it is data, not code to trust, and in jinja2 one expression of
it can ask for any amount of memory and time in a single operation that no other thread gets a turn
in. So these are rendered in a child process with limits (headrace.limited).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from headrace.errors import TemplateError
from headrace.limited.processes import LimitedProcesses, Work
from headrace.quoting import quoted, shortened

MAX_VARIABLE_BYTES = 16 << 20  # as in headrace/chat_template.h


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Raises TemplateError."""
    return _answer(_packed(template, dict(variables)))


def variables_read(template: str) -> frozenset[str]:
    """The names of the variables that a template reads. Raises TemplateError.

    In the other process too: Jinja computes constant expressions when it compiles.
    """
    return frozenset(_answer(pickle.dumps((template, None), 5)).split())


def _answer(request: bytes | bytearray) -> str:
    return _pool.ask(request).decode("utf-8", "surrogatepass")


class _Request(bytearray):
    """A file that takes only so much."""

    def write(self, data: Any) -> int:
        if len(self) + len(data) > MAX_VARIABLE_BYTES:
            raise TemplateError(
                f"the variables of the chat template, the messages among them, have more than the "
                f"{MAX_VARIABLE_BYTES} bytes allowed"
            )
        self += data
        return len(data)


def _packed(template: str, variables: dict[str, Any]) -> bytearray:
    request = _Request()
    try:
        pickle.Pickler(request, 5).dump((template, variables))
    except TemplateError:
        raise
    except Exception as error:  # which one depends on the object
        raise TemplateError(
            f"{_unsendable(variables)} is not plain data: a process of its own renders this, "
            f"so give strings, numbers, lists and dicts ({shortened(str(error))})"
        ) from error
    return request


def _unsendable(variables: dict[str, Any]) -> str:
    for name, value in variables.items():
        try:
            pickle.dumps(value, 5)
        except Exception:
            return f"the template variable {quoted(name)} ({quoted(value)})"
    return "a variable of the template"


_pool = LimitedProcesses(
    Work(
        handler="headrace.text.templates.worker",
        packages=("jinja2", "markupsafe"),
        noun="chat template",
        does="renders chat templates",
        remedy="render the conversation yourself and call generate()",
        error=TemplateError,
        failure=TemplateError,
    )
)
