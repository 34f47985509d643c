"""How a model makes embeddings: the files that sentence-transformers puts beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import UnsupportedError
from headrace.quoting import quoted
from headrace.text.model_files import read_json, read_text

_POOLINGS = {"lasttoken": "last", "mean": "mean", "mean_tokens": "mean", "cls": "cls"}
_POOLINGS["cls_token"] = "cls"
_KNOWN_MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
# Their first token is there to stand for the text.
_ENCODERS = ("bert", "roberta", "xlm-roberta", "modernbert")


@dataclass(frozen=True, slots=True)
class EmbeddingFiles:
    """What they say; the defaults hold for a folder without them.

    found: there is a modules.json.
    pooling: "last", "mean" or "cls"; without modules.json "cls" of an encoder.
    dense: Dense modules follow. normalize: then to length 1.
    dimensions: truncate_dim; None: all numbers.
    prompts: texts to put before an input, by name. default_prompt_name: of the one that is put
        there unless another is asked for.
    max_tokens: of an input; None: what the model takes.
    """

    found: bool = False
    pooling: str = "last"
    dense: bool = False
    normalize: bool = True
    dimensions: int | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    max_tokens: int | None = None

    def prompt(self, name: str | None) -> str:
        """The text of that name; None: the default's. Raises ValueError for an unknown one."""
        name = self.default_prompt_name if name is None else name
        if name is None:
            return ""
        if not isinstance(name, str) or name not in self.prompts:
            known = ", ".join(sorted(self.prompts)) or "it has none"
            raise ValueError(f"prompt_name {quoted(name)} is none of the model's: {known}")
        return self.prompts[name]


def read_embedding_files(folder: Path) -> EmbeddingFiles:
    """Reads modules.json and the files it leads to, and config_sentence_transformers.json.

    Raises ValueError for a wrong file and UnsupportedError for a module or a pooling that the
    engine doesn't have.
    """
    modules = _modules(folder / "modules.json")
    if modules is None:
        is_encoder = read_json(folder / "config.json").get("model_type") in _ENCODERS
        return EmbeddingFiles(pooling="cls" if is_encoder else "last")
    kinds = [kind for kind, _ in modules]
    for kind in kinds:
        if kind not in _KNOWN_MODULES:
            raise UnsupportedError(
                f"{folder / 'modules.json'}: the module {quoted(kind)} is not supported: this "
                f"version of Headrace runs {', '.join(_KNOWN_MODULES)}"
            )
    dense = ["Dense"] * kinds.count("Dense")
    begin = ["Transformer", "Pooling", *dense]
    if kinds not in (begin, [*begin, "Normalize"]):
        raise UnsupportedError(
            f"{folder / 'modules.json'}: the modules must be Transformer, Pooling and perhaps "
            f"Dense and Normalize, in this order, got {', '.join(kinds) or 'none'}"
        )
    config_path = folder / "config_sentence_transformers.json"
    config = read_json(config_path)
    prompts = _prompts(config.get("prompts") or {}, config_path)
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ValueError(
            f"{config_path}: default_prompt_name is {quoted(default)}, but prompts has no such name"
        )
    return EmbeddingFiles(
        True,
        _pooling(folder / modules[1][1] / "config.json"),
        bool(dense),
        "Normalize" in kinds,
        _size(config, "truncate_dim", config_path),
        prompts,
        default,
        _max_tokens(folder / modules[0][1] / "sentence_bert_config.json"),
    )


def classifier_activation(folder: Path) -> str:
    """What config.json says that sentence-transformers' CrossEncoder makes of a label's logit: the
    name of a class of torch.nn."""
    config = read_json(folder / "config.json")
    settings = config.get("sentence_transformers")
    name = settings.get("activation_fn") if isinstance(settings, dict) else None
    name = name or config.get("sbert_ce_default_activation_function") or "Sigmoid"
    return str(name).rpartition(".")[2]


def _modules(path: Path) -> list[tuple[str, str]] | None:
    """Kind and folder of each; None without the file."""
    text = read_text(path)
    if text is None:
        return None
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{path} must hold a list of modules")
    found = []
    for item in items:
        kind, where = item.get("type"), item.get("path")
        if not isinstance(kind, str) or not isinstance(where, str):
            raise ValueError(f"{path}: a module needs a type and a path, got {quoted(item)}")
        if Path(where).is_absolute() or ".." in Path(where).parts:
            raise ValueError(f"{path}: the path {quoted(where)} leads out of the folder")
        found.append((kind.rpartition(".")[2], where))
    return found


def _pooling(path: Path) -> str:
    config = read_json(path)
    if config.get("include_prompt") is False:
        raise UnsupportedError(
            f"{path}: include_prompt is false: this version of Headrace pools prompts with the text"
        )
    mode = config.get("pooling_mode")
    begin = "pooling_mode_"
    modes = [mode] if isinstance(mode, str) else mode
    if not isinstance(modes, list):
        flags = {name: value for name, value in config.items() if name.startswith(begin)}
        modes = [name[len(begin) :] for name, value in flags.items() if value is True]
    known = [_POOLINGS.get(str(one)) for one in modes]
    if len(known) != 1 or known[0] is None:
        raise UnsupportedError(
            f"{path}: the pooling is {quoted(', '.join(map(str, modes)) or 'none')}: this version "
            "of Headrace has lasttoken, mean and cls, one at a time"
        )
    return known[0]


def _prompts(value: Any, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f"{path}: prompts must be texts by name, got {quoted(value)}")
    return value


def _max_tokens(path: Path) -> int | None:
    config = read_json(path)
    if "message" in (config.get("modality_config") or ()):
        raise UnsupportedError(
            f"{path}: modality_config has 'message': texts are to go through the chat template, "
            "which this version of Headrace doesn't do for embeddings; put the template's ids "
            "together yourself, with PoolingParams"
        )
    if config.get("do_lower_case"):
        raise UnsupportedError(f"{path}: do_lower_case is not supported: lower the texts yourself")
    return _size(config, "max_seq_length", path)


def _size(config: dict[str, Any], name: str, path: Path) -> int | None:
    value = config.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{path}: {name} must be a positive integer, got {quoted(value)}")
    return value
