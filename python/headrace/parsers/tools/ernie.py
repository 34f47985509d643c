"""ERNIE's calls: Hermes' format, with rules for what may come before."""

from __future__ import annotations

from headrace.parsers.tools.hermes import Hermes
from headrace.parsers.tools.json_calls import read_call

_RESPONSE, _RESPONSE_END = "<response>", "</response>"


class _Ernie(Hermes):
    def read_body(self, body: str) -> tuple[str, str]:
        """Outer braces that are missing are added."""
        for text in (body, "{" + body, body + "}"):
            try:
                return read_call(text)
            except ValueError:
                continue
        return read_call("{" + body + "}")


class ErnieX1(_Ernie):
    """A call right behind a complete <response> is none."""

    def may_follow(self, before: str) -> bool:
        said = before.rstrip()
        return not said.endswith(_RESPONSE_END) or _RESPONSE not in said


class Ernie45VLThinking(_Ernie):
    """Calls come first after the thinking: behind other text there are none."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._called = False

    def may_follow(self, before: str) -> bool:
        return self._called or not before.rpartition("</think>")[2].strip("\n")

    def read_body(self, body: str) -> tuple[str, str]:
        call = super().read_body(body)
        self._called = True
        return call
