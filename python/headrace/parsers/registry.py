"""Parsers by name: the ones here, plugins of installed packages, and what a program registers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from headrace.parsers.harmony import MARKERS
from headrace.parsers.reasoning.format import REASONING_FORMATS, ReasoningFormat
from headrace.parsers.tools.ernie import Ernie45VLThinking, ErnieX1
from headrace.parsers.tools.format import ToolFormat
from headrace.parsers.tools.glm import Glm
from headrace.parsers.tools.hermes import Hermes
from headrace.parsers.tools.llama3_json import Llama3Json
from headrace.parsers.tools.mistral import Mistral, MistralArgs
from headrace.parsers.tools.pythonic import Pythonic
from headrace.parsers.tools.qwen3_coder import Qwen3Coder
from headrace.quoting import quoted

ENTRY_POINTS = "headrace.parsers"
T = TypeVar("T")


class HarmonyCalls(ToolFormat):
    """The calls of gpt-oss: headrace.parsers.harmony takes them out."""

    others = MARKERS


class Parsers(Generic[T]):
    """Named parsers of one kind. Thread safe. "_" and "-" are the same in a name."""

    def __init__(
        self,
        kind: str,
        known: Mapping[str, T],
        aliases: Mapping[str, str],
        fits: Callable[[T], bool],
    ) -> None:
        self._kind = kind
        self._known = dict(known)
        self._aliases = aliases
        self._fits = fits
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Of the parsers here and the registered ones; plugins are looked up by name."""
        with self._lock:
            return sorted(self._known)

    def register(self, name: str, parser: T, *, force: bool = True) -> None:
        """Makes a parser known. Raises TypeError for one of another kind, and KeyError if the name
        is taken and not by `force`."""
        if not self._fits(parser):
            raise TypeError(f"{quoted(name)} is no {self._kind}: {quoted(parser)}")
        with self._lock:
            if not force and _plain(name) in self._known:
                raise KeyError(f"{name} is already registered")
            self._known[_plain(name)] = parser

    def get(self, name: str) -> T:
        """Raises KeyError naming those there are."""
        plain = _plain(name)
        with self._lock:
            found = self._known.get(self._aliases.get(plain, plain))
        if found is None:
            found = self._plugin(plain)
        if found is None:
            raise KeyError(f"{self._kind} {quoted(name)} not found; there are {self.names()}")
        return found

    def _plugin(self, name: str) -> T | None:
        import importlib.metadata  # slow to import

        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            if _plain(entry.name) == name:
                parser = entry.load()
                if self._fits(parser):
                    return parser  # type: ignore[no-any-return]
        return None


def _plain(name: str) -> str:
    return name.replace("_", "-")


reasoning_parsers: Parsers[ReasoningFormat] = Parsers(
    "reasoning parser",
    REASONING_FORMATS,
    {"glm45": "glm-45", "harmony": "gpt-oss", "openai-gptoss": "gpt-oss", "magistral": "mistral"},
    lambda parser: isinstance(parser, ReasoningFormat),
)
tool_parsers: Parsers[type[ToolFormat]] = Parsers(
    "tool-call parser",
    {
        "ernie-x1": ErnieX1,
        "ernie-45-vl-thinking": Ernie45VLThinking,
        "hermes": Hermes,
        "qwen3-coder": Qwen3Coder,
        "llama3-json": Llama3Json,
        "pythonic": Pythonic,
        "mistral": Mistral,
        "mistral-v11": MistralArgs,
        "glm-45": Glm,
        "harmony": HarmonyCalls,
    },
    {
        "qwen": "hermes",
        "qwen3": "hermes",
        "glm45": "glm-45",
        "gpt-oss": "harmony",
        "openai": "harmony",
        "llama4-pythonic": "pythonic",
        "qwen3-xml": "qwen3-coder",
    },
    lambda parser: isinstance(parser, type) and issubclass(parser, ToolFormat),
)
