"""Access by key, as FastDeploy's results have it beside attributes."""

from __future__ import annotations

from typing import Any

# Shown by dir() also where they say nothing: what every result has.
_ALWAYS = frozenset(
    {"outputs", "metrics", "text", "token_ids", "finish_reason", "prompt", "error_msg"}
)


class _ShortDir:
    """dir() without the fields that say nothing: most are there for other engines' scripts."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return [
            name
            for name in super().__dir__()
            if not name.startswith("_") and (name in _ALWAYS or getattr(self, name, None))
        ]


class KeyedPart(_ShortDir):
    """A part of a result: its fields are its keys."""

    __slots__ = ()

    def get(self, key: str, default_value: Any = None) -> Any:
        return getattr(self, key, default_value)

    def set(self, key: str, value: Any) -> None:
        """Raises KeyError for what is no field."""
        if not hasattr(self, key):
            raise KeyError(key)
        setattr(self, key, value)

    def __getitem__(self, key: str) -> Any:
        if not hasattr(self, key):
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __contains__(self, key: str) -> bool:
        return hasattr(self, key)


class KeyedResult(_ShortDir):
    """A result whose keys are its own fields, else those of its `outputs`, else of its `metrics`.

    What is set goes to the parts first, and a new key to the result itself.
    """

    outputs: Any
    metrics: Any

    def get(self, key: str, default_value: Any = None) -> Any:
        owner = self._owner(key)
        return default_value if owner is None else getattr(owner, key)

    def set(self, key: str, value: Any) -> None:
        parts = (self.outputs, self.metrics)
        owner = next((part for part in parts if part is not None and hasattr(part, key)), self)
        setattr(owner, key, value)

    def __getitem__(self, key: str) -> Any:
        return getattr(self._needed_owner(key), key)

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        """The attribute is gone then."""
        delattr(self._needed_owner(key), key)

    def __contains__(self, key: str) -> bool:
        return self._owner(key) is not None

    def _owner(self, key: str) -> Any:
        for owner in (self, getattr(self, "outputs", None), getattr(self, "metrics", None)):
            if owner is not None and hasattr(owner, key):
                return owner
        return None

    def _needed_owner(self, key: str) -> Any:
        owner = self._owner(key)
        if owner is None:
            raise KeyError(key)
        return owner
