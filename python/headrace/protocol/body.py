"""The fields of a JSON object, each taken by name and type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted


class Body:
    """A JSON object being read. null is the same as a field that is missing.

    `finish` refuses what nobody has asked for, so that no field is ignored in silence.
    """

    def __init__(self, value: Any, path: str = "") -> None:
        """`path`: where the object is in the request, for messages; "" is the request itself."""
        if not isinstance(value, Mapping):
            what = path or "the body of the request"
            raise ProtocolError(
                f"{what} must be a JSON object, got {quoted(value)}", path or None, "invalid_type"
            )
        self._fields = {str(name): item for name, item in value.items() if item is not None}
        self._asked: set[str] = set()
        self._path = path
        self.notes: list[str] = []  # what was given and has no effect, a sentence each

    def path(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def take(self, name: str) -> Any:
        """The value, of any type; None if there is none."""
        self._asked.add(name)
        return self._fields.get(name)

    def text(self, name: str) -> str | None:
        value: str | None = self._typed(name, "a string", str)
        return value

    def flag(self, name: str) -> bool | None:
        value: bool | None = self._typed(name, "true or false", bool)
        return value

    def integer(self, name: str) -> int | None:
        value = self._typed(name, "an integer", (int, float))
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise self._wrong_type(name, "an integer", value)
        return None if value is None else int(value)

    def number(self, name: str) -> float | int | None:
        value: float | int | None = self._typed(name, "a number", (int, float))
        if isinstance(value, bool):
            raise self._wrong_type(name, "a number", value)
        return value

    def array(self, name: str) -> list[Any] | None:
        value: list[Any] | None = self._typed(name, "an array", list)
        return value

    def mapping(self, name: str) -> dict[str, Any] | None:
        value: dict[str, Any] | None = self._typed(name, "an object", dict)
        return value

    def required(self, name: str) -> Any:
        if name not in self._fields:
            path = self.path(name)
            raise ProtocolError(
                f"Missing required parameter: {quoted(path)}", path, "missing_required_parameter"
            )
        return self.take(name)

    def choice(self, name: str, options: Iterable[str]) -> str | None:
        """A string that is one of `options`."""
        value = self.text(name)
        known = list(options)
        if value is not None and value not in known:
            raise ProtocolError(
                f"{self.path(name)} must be one of {', '.join(known)}, got {quoted(value)}",
                self.path(name),
            )
        return value

    def refuse(self, name: str, why: str, *harmless: Any) -> None:
        """Raises ProtocolError if the field is given, unless as one of the `harmless` values."""
        value = self.take(name)
        if value is not None and value not in harmless:
            path = self.path(name)
            raise ProtocolError(f"{path}: {why}", path, "unsupported_parameter")

    def note(self, name: str, why: str, *harmless: Any) -> None:
        """Notes that the field has no effect if it is given, but as one of the `harmless`."""
        value = self.take(name)
        if value is not None and value not in harmless:
            self.notes.append(f"{self.path(name)} has no effect: {why}")

    def leave_out(self, why: str) -> None:
        """Notes that the whole object has no effect, and takes all its fields."""
        self._asked.update(self._fields)
        self.notes.append(f"{self._path} is left out: {why}")

    def finish(self) -> None:
        """Raises ProtocolError for a field that nothing has asked for."""
        unknown = sorted(self._fields.keys() - self._asked)
        if not unknown:
            return
        path = self.path(unknown[0])
        near = difflib.get_close_matches(unknown[0][:100], self._asked, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ProtocolError(
            f"Unrecognized request argument: {quoted(path)}{hint}", path[:200], "unknown_parameter"
        )

    def _typed(self, name: str, what: str, kinds: type | tuple[type, ...]) -> Any:
        value = self.take(name)
        if value is not None and not isinstance(value, kinds):
            raise self._wrong_type(name, what, value)
        return value

    def _wrong_type(self, name: str, what: str, value: Any) -> ProtocolError:
        path = self.path(name)
        return ProtocolError(f"{path} must be {what}, got {quoted(value)}", path, "invalid_type")
