"""FastDeploy's module path of the types of OpenAI's protocol: those of tools."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headrace.quoting import quoted

__all__ = ["ChatCompletionToolsParam", "FunctionDefinition"]


@dataclass
class FunctionDefinition:
    """A function that the model may call. `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name must be a string that is not empty, got {quoted(self.name)}")
        for name, kind in (("description", str), ("parameters", dict)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} must be a {kind.__name__} or None, got {quoted(value)}")


@dataclass(kw_only=True)
class ChatCompletionToolsParam:
    """A tool for `LLM.chat(tools=...)`. `function` may be given as a dict.

    Raises ValueError for anything but a function with a name.
    """

    type: str = "function"
    function: FunctionDefinition

    def __post_init__(self) -> None:
        if self.type != "function":
            raise ValueError(f"type must be 'function', got {quoted(self.type)}")
        if isinstance(self.function, Mapping):
            self.function = _definition(self.function)
        if not isinstance(self.function, FunctionDefinition):
            raise ValueError(f"function must be a FunctionDefinition, got {quoted(self.function)}")

    def model_dump(self, exclude_none: bool = False) -> dict[str, Any]:
        """The tool as dicts; without what is None with `exclude_none`."""
        function = {
            name: value
            for name, value in vars(self.function).items()
            if not (exclude_none and value is None)
        }
        return {"type": self.type, "function": function}


def _definition(values: Mapping[str, Any]) -> FunctionDefinition:
    known = [item.name for item in fields(FunctionDefinition)]
    unknown = ", ".join(sorted(str(key) for key in values if key not in known))
    if unknown:
        warnings.warn(f"function: no effect of {unknown:.200}", stacklevel=4)
    return FunctionDefinition(**{"name": "", **{k: v for k, v in values.items() if k in known}})
