"""What an output must conform to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import UnsupportedError
from headrace.quoting import quoted

REQUEST_NAMES = {
    "json": "guided_json",
    "regex": "guided_regex",
    "choice": "guided_choice",
    "grammar": "guided_grammar",
    "structural_tag": "structural_tag",
    "json_object": "guided_json_object",
}


@dataclass(slots=True)
class GuidedDecodingParams:
    """What an output must conform to. At most one may be set.

    json: a JSON schema: a dict, JSON text of one, or a pydantic model.
    regex: a regular expression for the whole output, in Rust's syntax: Python's without
        look-around, back-references and word borders.
    choice: one of these texts.
    grammar: a grammar in llguidance's variant of Lark, or in GBNF.
    json_object: any JSON object.
    structural_tag: free text with JSON in tags, as JSON text: {"type": "structural_tag",
        "structures": [{"begin": ..., "schema": {...}, "end": ...}], "triggers": [...]}.
    strict: what of `json` can't be guided is an error. False: it is left to the model.
    disable_any_whitespace: JSON without whitespace between its parts.

    The whole output is meant, from its first token to its end. Where it is complete the request
    stops; end-of-sequence comes nowhere else. `max_tokens` may still cut it (finish_reason
    "length"). See docs/api.md for what else may end it.
    """

    json: str | dict[str, Any] | Any | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    strict: bool = True
    disable_any_whitespace: bool = False

    def __post_init__(self) -> None:
        if len(self.to_dict()) > 1:
            raise ValueError(
                "You can only use one kind of guided decoding "
                "('json', 'json_object', 'regex', 'choice', 'grammar', 'structural_tag')."
            )
        if callable(getattr(self.json, "model_json_schema", None)):
            self.json = self.json.model_json_schema()  # type: ignore[union-attr]
        if self.json is not None and not isinstance(self.json, (str, dict)):
            raise TypeError(f"json must be a str or a dict, got {type(self.json).__name__}")
        for name in ("regex", "grammar", "structural_tag"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a str, got {type(value).__name__}")
        if self.choice is not None:
            self._check_choice(self.choice)

    @staticmethod
    def _check_choice(choice: Any) -> None:
        if not isinstance(choice, list) or not all(isinstance(item, str) for item in choice):
            raise TypeError(f"choice must be a list of str, got {quoted(choice)}")
        if not choice:
            raise ValueError("choice must not be empty")

    @classmethod
    def from_names(cls, values: Mapping[str, Any]) -> GuidedDecodingParams | None:
        """From what `to_dict` gives, among other keys; None if none of them is set."""
        own = {
            field: values[name]
            for field, name in REQUEST_NAMES.items()
            if values.get(name) is not None
        }
        return cls(**own) if own else None

    def to_dict(self) -> dict[str, Any]:
        """The one that is set, under the request's name for it ("guided_json", ...)."""
        values = {name: getattr(self, field) for field, name in REQUEST_NAMES.items()}
        values["guided_json_object"] = self.json_object or None
        return {name: value for name, value in values.items() if value is not None}


@dataclass(slots=True)
class StructuredOutputsParams(GuidedDecodingParams):
    """GuidedDecodingParams by vLLM's name, with the rest of its fields.

    disable_fallback: there is one backend, and none to fall back to. whitespace_pattern and
    disable_additional_properties raise UnsupportedError: the schema itself says what may come.
    """

    disable_fallback: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        GuidedDecodingParams.__post_init__(self)
        if self.disable_additional_properties:
            raise UnsupportedError(
                'disable_additional_properties: write "additionalProperties": false into the schema'
            )
        if self.whitespace_pattern is not None:
            raise UnsupportedError(
                f"whitespace_pattern={quoted(self.whitespace_pattern)}: disable_any_whitespace "
                "bounds whitespace; patterns for it aren't there"
            )
