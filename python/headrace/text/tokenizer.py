"""The tokenizer of a model folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, TypeGuard, cast

from headrace import _core
from headrace._core import Detokenizer, TextTokenizer
from headrace.errors import TokenizerError, UnsupportedError
from headrace.quoting import quoted, shortened
from headrace.text.model_files import VOCABULARY_FILES, read_json
from headrace.text.templates.chat_template import find_template, render_template, template_variables
from headrace.text.token_bytes import TokenBytes

_SHORT_TEXT = 1 << 16  # characters
_CUT_MARGIN = 64  # tokens: those at the cut may differ from those of the whole text
_KEPT_OPENINGS = 32
_MAX_MESSAGE = 1000  # characters


class Tokenizer:
    """Text to ids and back, and the model's chat template. Thread safe.

    No special token is added to a text unless `add_special_tokens=True` asks for it, so a raw
    prompt is tokenized exactly as written.
    """

    def __init__(self, core: TextTokenizer, templates: dict[str, str], folder: Path) -> None:
        self._core = core
        self._templates = templates
        self._folder = folder
        self._config = read_json(folder / "tokenizer_config.json")
        special = core.special()
        self._special_tokens = {role: text for role, text, _ in special if role}
        self._special_ids = {text: token_id for _, text, token_id in special}
        self._openings: dict[tuple[str | None, str], str] = {}

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike[str], revision: str = "master") -> Tokenizer:
        """The tokenizer of a local model folder, or of a model on the hub.

        Raises TokenizerError if the folder has no tokenizer this version can read.
        """
        from headrace.hub import resolve_model

        folder = resolve_model(os.fspath(path), revision, weights=False)
        tokenizer = cls._from_folder(folder)
        if tokenizer is None:
            names = f"{', '.join(VOCABULARY_FILES[:-1])} or {VOCABULARY_FILES[-1]}"
            raise TokenizerError(f"{folder} has no tokenizer: expected {names}")
        return tokenizer

    @classmethod
    def _from_folder(cls, folder: Path) -> Tokenizer | None:
        """None if the folder has no tokenizer file."""
        if not any(os.path.lexists(folder / name) for name in VOCABULARY_FILES):
            return None
        name = os.fspath(folder)
        with _errors(f"cannot open {quoted(name)}"):
            return cls(TextTokenizer(name), _core.chat_templates(name), folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process reads the folder again."""
        return type(self).from_pretrained, (os.fspath(self.folder.absolute()),)

    def __deepcopy__(self, memo: object) -> Tokenizer:
        return self  # it never changes

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._folder

    @property
    def config(self) -> dict[str, Any]:
        """tokenizer_config.json; {} without one."""
        return self._config

    # Text and ids.

    def encode(
        self, text: str, add_special_tokens: bool = False, *, max_tokens: int | None = None
    ) -> list[int]:
        """The ids of a text. Special tokens written out in the text become their ids.

        max_tokens: refuse a text that can't be so few tokens, each as long as the vocabulary's
            longest, without tokenizing it; there may be more ids all the same.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        with _errors("cannot tokenize the text"):
            return self._core.encode(
                text, add_special_tokens, max_tokens=0 if max_tokens is None else max(max_tokens, 1)
            )

    def encode_beginning(self, text: str, most: int, add_special_tokens: bool = False) -> list[int]:
        """At most so many ids of a text, among them the special tokens that belong around it."""
        beginning = text[: max((most + _CUT_MARGIN) * self._core.longest_token, _SHORT_TEXT)]
        ids = self.encode(beginning, add_special_tokens)
        if len(ids) < most and len(beginning) < len(text):  # a normalizer has dropped much of it
            beginning = text
            ids = self.encode(beginning, add_special_tokens)
        if len(ids) <= most or not add_special_tokens:
            return ids[:most]
        bare = self.encode(beginning)
        added = len(ids) - len(bare)
        for before in range(added + 1 if 0 <= added < most else 0):
            if ids[before : before + len(bare)] == bare:
                return ids[: before + most - added] + ids[before + len(bare) :]
        return ids[:most]

    def encode_pair(
        self, first: str, second: str, *, most: int | None = None, max_tokens: int | None = None
    ) -> tuple[list[int], int]:
        """The ids of two texts as one, with the special tokens around and between them, and where
        those of type 1 begin, for a model that tells the texts apart (0: nowhere).

        most: cut the end of the second text, so that there are at most so many ids. Raises
            ValueError if the rest has as many.
        max_tokens: of `encode`, for both texts.

        Raises UnsupportedError if the tokenizer doesn't say how two texts are joined.
        """
        head = self.encode(first, max_tokens=max_tokens if most is None else most)
        if most is None:
            tail = self.encode(second, max_tokens=max_tokens)
        else:
            tail = self.encode_beginning(second, most)
        try:
            ids, types = self._core.join_pair(head, tail)
            if most is not None and len(ids) > most:
                room = len(tail) + most - len(ids)
                if room < 1:
                    raise ValueError(
                        f"{most} tokens are too few for the first text of {len(head)}, the special "
                        "tokens, and any of the second"
                    )
                ids, types = self._core.join_pair(head, tail[:room])
        except _core.HeadraceError as error:
            raise UnsupportedError(str(error)) from error
        second_at = types.index(1) if 1 in types else 0
        if types != [int(0 < second_at <= place) for place in range(len(types))]:
            raise UnsupportedError("the tokenizer's template for two texts has unknown token types")
        return ids, second_at

    def decode(
        self,
        token_ids: SupportsIndex | Iterable[SupportsIndex],
        skip_special_tokens: bool = False,
    ) -> str:
        """The text of an id or of several. Unknown ids have no text."""
        ids: Any = token_ids if _is_iterable(token_ids) else [token_ids]
        with _errors("cannot decode the ids"):
            return self._core.decode(ids, skip_special_tokens)

    def detokenizer(
        self,
        skip_special_tokens: bool = False,
        shown: frozenset[str] = frozenset(),
        after: Sequence[int] = (),
    ) -> Detokenizer:
        """A fresh incremental detokenizer, exact with respect to `decode`.

        shown: special tokens that stay in the text, whatever skip_special_tokens says.
        after: the ids that the output goes on from, so that a space at its start stays. Without
            them the output begins a text.
        """
        with _errors("cannot look up the tokens that are shown"):
            return Detokenizer(self._core, skip_special_tokens, sorted(shown), after)

    def token_text(self, token_id: int) -> str:
        """The text one token adds in the middle of an output (U+FFFD for part of a character)."""
        try:  # `with` takes longer than the call, and log-probabilities have many tokens
            return self._core.token_text(token_id)
        except _core.HeadraceError as error:
            raise _error(error) from error

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes one token adds in the middle of an output, also those of a part of a
        character."""
        try:
            return self._core.token_bytes(token_id)
        except _core.HeadraceError as error:
            raise _error(error) from error

    def token_bytes(self) -> TokenBytes:
        """The bytes that each id adds to a text. Takes a while: keep the result.

        Raises UnsupportedError if this tokenizer's texts aren't made token by token.
        """
        try:
            return TokenBytes(*self._core.vocabulary_bytes())
        except _core.HeadraceError as error:
            raise UnsupportedError(str(error)) from error

    def tokenize(self, text: str) -> list[str]:
        """The vocabulary's spelling of each token of a text."""
        return [self._core.spelling(token_id) or "" for token_id in self.encode(text)]

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        """The id of a token or the ids of several; the unknown token's for one not there."""
        if isinstance(tokens, str):
            token_id = self._id_of(tokens)
            return self.unk_token_id if token_id is None else token_id
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: SupportsIndex | Iterable[SupportsIndex]) -> Any:
        """The spelling of an id or of several; None for one not there."""
        if _is_iterable(ids):
            return [self._core.spelling(token_id) for token_id in ids]
        return self._core.spelling(cast("SupportsIndex", ids))

    def __len__(self) -> int:
        return len(self._core)

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return len(self._core)

    # Special tokens.

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The named special tokens, e.g. {"bos_token": "<s>"}."""
        return dict(self._special_tokens)

    @property
    def all_special_tokens(self) -> list[str]:
        """Every special token once, the named ones first."""
        return list(self._special_ids)

    @property
    def all_special_ids(self) -> list[int]:
        return [token_id for token_id in self._special_ids.values() if token_id >= 0]

    @property
    def bos_token(self) -> str | None:
        return self._special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self._special_tokens.get("eos_token")

    @property
    def unk_token(self) -> str | None:
        return self._special_tokens.get("unk_token")

    @property
    def pad_token(self) -> str | None:
        return self._special_tokens.get("pad_token")

    @property
    def bos_token_id(self) -> int | None:
        return self._special_id(self.bos_token)

    @property
    def eos_token_id(self) -> int | None:
        return self._special_id(self.eos_token)

    @property
    def unk_token_id(self) -> int | None:
        return self._special_id(self.unk_token)

    @property
    def pad_token_id(self) -> int | None:
        return self._special_id(self.pad_token)

    def _special_id(self, token: str | None) -> int | None:
        return None if token is None else self._id_of(token)

    def _id_of(self, token: str) -> int | None:
        with _errors("cannot look up the token"):
            return self._core.id(token)

    # Chat.

    @property
    def chat_template(self) -> str | None:
        """The folder's own template."""
        return self._templates.get("default")

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        tokenize: bool = True,
        **variables: Any,
    ) -> Any:
        """The conversation as the model wants to read it: ids, or text with `tokenize=False`.

        `conversation` is a list of messages, or a mapping with that list under "messages".
        `chat_template` is Jinja text or the name of one of the folder's templates; other keywords
        are variables of the template. Unlike in transformers, the generation prompt is included
        unless `add_generation_prompt=False`. The template sees the messages unchanged.

        Raises TemplateError if there is no template or it fails.
        """
        for ignored in ("split_special_tokens", "add_special_tokens"):
            variables.pop(ignored, None)
        messages = conversation
        if isinstance(conversation, Mapping):
            messages = conversation.get("messages") or []
        text = render_template(
            find_template(self._templates, chat_template, with_tools=bool(tools)),
            {
                **self._special_tokens,
                **variables,
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
            },
        )
        return self.encode(text) if tokenize else text

    def generation_prompt(
        self, chat_template: str | None = None, variables: Mapping[str, Any] | None = None
    ) -> str:
        """What a template puts behind a conversation for the model to go on from.

        "" if that can't be told from the rest. Raises TemplateError, as apply_chat_template does.
        """
        key = (chat_template, repr(variables))
        known = self._openings.get(key)
        if known is not None:
            return known
        bare, whole = (
            self.apply_chat_template(
                [{"role": "user", "content": "x"}],
                chat_template=chat_template,
                add_generation_prompt=added,
                tokenize=False,
                **(variables or {}),
            )
            for added in (False, True)
        )
        opening = whole[len(bare) :] if whole.startswith(bare) else ""
        if len(self._openings) >= _KEPT_OPENINGS:
            self._openings.clear()
        self._openings[key] = opening
        return opening

    @property
    def chat_templates(self) -> dict[str, str]:
        """The folder's templates by name; its own is "default"."""
        return dict(self._templates)

    def template_variables(
        self, chat_template: str | None = None, with_tools: bool = False
    ) -> frozenset[str]:
        """The variables that a template reads: the one that apply_chat_template would use.

        Raises TemplateError, as it would.
        """
        return template_variables(find_template(self._templates, chat_template, with_tools))


def _is_iterable(
    ids: SupportsIndex | Iterable[SupportsIndex],
) -> TypeGuard[Iterable[SupportsIndex]]:
    """Whether it is several ids. An array or tensor without dimensions has `__iter__`, too."""
    try:
        iter(ids)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


@contextlib.contextmanager
def _errors(doing: str) -> Iterator[None]:
    """doing: what can't be done with a str that UTF-8 can't have."""
    try:
        yield
    except _core.HeadraceError as error:
        raise _error(error) from error
    except UnicodeEncodeError:
        raise TokenizerError(f"{doing}: it has a lone surrogate, which is no character") from None


def _error(error: _core.HeadraceError) -> TokenizerError:
    return TokenizerError(shortened(str(error), _MAX_MESSAGE))


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a local folder; None if it has none."""
    return Tokenizer._from_folder(folder)
