"""The tokenizer's side files in a model folder: configuration, special tokens, templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import TokenizerError
from headrace.quoting import quoted
from headrace.text.model_files import SPECIAL_TOKEN_KEYS, read_json, read_text

# In the order of preference.
VOCABULARY_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spm.model",
    "ernie_token_100k.model",
    "qwen.tiktoken",
    "tiktoken.model",
    "tekken.json",
)
MAX_TOKEN_ID = 1 << 22  # the largest vocabularies have a quarter of a million
MAX_ADDED_TOKENS = 1 << 17


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
    for key in SPECIAL_TOKEN_KEYS:
        token = _token_text(merged.get(key))
        if token is not None:
            _check_text(folder, token)
            files.special_tokens[key] = token
    texts = (_token_text(item) for item in _extra_tokens(folder, merged))
    files.additional_special_tokens = [text for text in texts if text is not None]
    for text in files.additional_special_tokens:
        _check_text(folder, text)
    files.added_tokens = _added_tokens(folder, config)
    files.templates = _templates(folder, config)
    return files


def _check_text(folder: Path, token: str) -> None:
    try:
        token.encode()
    except UnicodeEncodeError:
        raise TokenizerError(
            f"{folder}: the token {quoted(token)} of its tokenizer files has a lone surrogate"
        ) from None


def _token_text(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _extra_tokens(folder: Path, merged: Mapping[str, Any]) -> Iterable[Any]:
    for name in ("additional_special_tokens", "extra_special_tokens"):
        value = merged.get(name) or []
        if not isinstance(value, (list, dict)):
            raise TokenizerError(
                f"{folder / 'tokenizer_config.json'}: {name} must be a list, got {quoted(value)}"
            )
        if value:
            return value.values() if isinstance(value, dict) else value
    return []


def _added_tokens(folder: Path, config: Mapping[str, Any]) -> list[AddedToken]:
    added: dict[int, AddedToken] = {}
    path = folder / "added_tokens.json"
    for content, token_id in read_json(path).items():
        if not isinstance(token_id, int) or not 0 <= token_id <= MAX_TOKEN_ID:
            raise _wrong_id(path, content, token_id)
        _check_text(folder, content)
        added[token_id] = AddedToken(content, token_id, special=False)
    path = folder / "tokenizer_config.json"
    decoder = config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, Mapping):
        raise TokenizerError(f"{path}: added_tokens_decoder must be an object")
    for key, value in decoder.items():
        text = _token_text(value)
        if text is None:
            raise TokenizerError(f"{path}: bad added token {quoted(key)}: {quoted(value)}")
        if not (key.isdecimal() and len(key) < 10 and int(key) <= MAX_TOKEN_ID):
            raise _wrong_id(path, text, key)
        _check_text(folder, text)
        flags = value if isinstance(value, Mapping) else {}
        names = ("special", "lstrip", "rstrip", "single_word", "normalized")
        given = {name: bool(flags[name]) for name in names if name in flags}
        added[int(key)] = AddedToken(text, int(key), **{"special": False, **given})
    if len(added) > MAX_ADDED_TOKENS:
        raise TokenizerError(
            f"{folder} has {len(added)} added tokens, more than the {MAX_ADDED_TOKENS} allowed"
        )
    return [added[token_id] for token_id in sorted(added)]


def _wrong_id(path: Path, content: str, token_id: Any) -> TokenizerError:
    return TokenizerError(
        f"{path}: the id of the added token {quoted(content)} must be in 0..{MAX_TOKEN_ID}, "
        f"got {quoted(token_id)}"
    )


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Later sources win: tokenizer_config.json, chat_template.json, the .jinja files."""
    templates: dict[str, str] = {}
    separate = folder / "chat_template.json"
    sources = {folder / "tokenizer_config.json": config, separate: read_json(separate)}
    for path, source in sources.items():
        value = source.get("chat_template")
        if isinstance(value, str):
            templates["default"] = value
        elif isinstance(value, list):
            for item in value:
                if not (isinstance(item, Mapping) and isinstance(item.get("template"), str)):
                    raise TokenizerError(f"{path}: chat_template: bad entry {quoted(item)}")
                templates[str(item.get("name", "default"))] = item["template"]
    extra = folder / "additional_chat_templates"
    if extra.is_dir():
        for path in sorted(extra.glob("*.jinja")):
            templates[path.stem] = read_text(path) or ""
    plain = read_text(folder / "chat_template.jinja")
    if plain is not None:
        templates["default"] = plain
    return templates
