"""The tokenizer's side files in a model folder: configuration, special tokens, templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import TokenizerError

_MAX_FILE_BYTES = 64 << 20
_SPECIAL_KEYS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


@dataclass(slots=True, frozen=True)
class AddedToken:
    """A token outside of the trained vocabulary, with its matching rules."""

    content: str
    id: int | None = None
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


@dataclass(slots=True)
class TokenizerFiles:
    """What a folder says about its tokenizer beside the vocabulary itself."""

    folder: Path
    config: dict[str, Any]
    special_tokens: dict[str, str] = field(default_factory=dict)  # "bos_token" -> "<s>", ...
    additional_special_tokens: list[str] = field(default_factory=list)
    added_tokens: list[AddedToken] = field(default_factory=list)  # in order of id
    templates: dict[str, str] = field(default_factory=dict)  # by name; "default" is the plain one

    def flag(self, name: str) -> bool | None:
        """A true or false of tokenizer_config.json, None if it says nothing."""
        value = self.config.get(name)
        return value if isinstance(value, bool) else None


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Reads the side files; each may be missing, a malformed one is a TokenizerError."""
    config = read_json(folder / "tokenizer_config.json")
    merged = {**read_json(folder / "special_tokens_map.json"), **config}
    files = TokenizerFiles(folder, config)
    for key in _SPECIAL_KEYS:
        token = _token_text(merged.get(key))
        if token is not None:
            files.special_tokens[key] = token
    extra = merged.get("additional_special_tokens") or merged.get("extra_special_tokens") or []
    items = extra.values() if isinstance(extra, dict) else extra
    texts = (_token_text(item) for item in items)
    files.additional_special_tokens = [text for text in texts if text is not None]
    files.added_tokens = _added_tokens(folder, config)
    files.templates = _templates(folder, config)
    return files


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} if there is none."""
    text = read_text(path)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value


def read_text(path: Path) -> str | None:
    """A UTF-8 text file; None if there is none."""
    if not path.is_file():
        return None
    size = path.stat().st_size
    if size > _MAX_FILE_BYTES:
        raise TokenizerError(f"{path} has {size} bytes, more than the {_MAX_FILE_BYTES} allowed")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not UTF-8: {error}") from error


def _token_text(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _added_tokens(folder: Path, config: Mapping[str, Any]) -> list[AddedToken]:
    added: dict[int, AddedToken] = {}
    for content, token_id in read_json(folder / "added_tokens.json").items():
        if not isinstance(token_id, int):
            raise TokenizerError(f"added_tokens.json: the id of {content!r} is {token_id!r}")
        added[token_id] = AddedToken(content, token_id, special=False)
    decoder = config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, Mapping):
        raise TokenizerError("tokenizer_config.json: added_tokens_decoder must be an object")
    for key, value in decoder.items():
        text = _token_text(value)
        if text is None or not str(key).isdecimal():
            raise TokenizerError(f"tokenizer_config.json: bad added token {key!r}: {value!r}")
        flags = value if isinstance(value, Mapping) else {}
        names = ("special", "lstrip", "rstrip", "single_word", "normalized")
        given = {name: bool(flags[name]) for name in names if name in flags}
        added[int(key)] = AddedToken(text, int(key), **{"special": False, **given})
    return [added[token_id] for token_id in sorted(added)]


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Later sources win: tokenizer_config.json, chat_template.json, the .jinja files."""
    templates: dict[str, str] = {}
    for source in (config, read_json(folder / "chat_template.json")):
        value = source.get("chat_template")
        if isinstance(value, str):
            templates["default"] = value
        elif isinstance(value, list):
            for item in value:
                if not (isinstance(item, Mapping) and isinstance(item.get("template"), str)):
                    raise TokenizerError(f"chat_template: bad entry {item!r}")
                templates[str(item.get("name", "default"))] = item["template"]
    extra = folder / "additional_chat_templates"
    if extra.is_dir():
        for path in sorted(extra.glob("*.jinja")):
            templates[path.stem] = read_text(path) or ""
    plain = read_text(folder / "chat_template.jinja")
    if plain is not None:
        templates["default"] = plain
    return templates
