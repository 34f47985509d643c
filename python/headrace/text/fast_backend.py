"""tokenizer.json, by the `tokenizers` package."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from headrace.errors import TokenizerError, UnsupportedError
from headrace.quoting import shortened
from headrace.text.decoders import Chain, NotStreamable, build_stages, byte_of
from headrace.text.detokenizer import ChainDetokenizer, Detokenizer, WholeTextDetokenizer
from headrace.text.headroom import has_room
from headrace.text.model_files import read_bytes
from headrace.text.token_bytes import TokenBytes, chain_token_bytes, part_bytes
from headrace.text.tokenizer_checks import check_growth, check_subword_prefix, check_template
from headrace.text.tokenizer_files import MAX_TOKEN_ID, AddedToken, TokenizerFiles

MAX_FILE_BYTES = 128 << 20
_BYTES_PER_FILE_BYTE = 16  # that the package takes to read a file, as measured
_BYTES_PER_TEXT_BYTE = 256  # and to tokenize
_LONG_TEXT = 1 << 16
_HELD_TEXT, _HELD_IDS = 4096, 1024  # what less takes under the GIL is a matter of a millisecond


class FastBackend:
    """A tokenizer.json, completed by the added tokens of tokenizer_config.json."""

    def __init__(self, path: Path, files: TokenizerFiles) -> None:
        """Raises TokenizerError, which names the file."""
        self._path = path
        text = read_bytes(path, MAX_FILE_BYTES)
        if text is None:
            raise TokenizerError(f"there is no file {path}")
        check_subword_prefix(path, text)
        if not has_room(len(text) * _BYTES_PER_FILE_BYTE + (8 << 20)):
            raise TokenizerError(f"{path}: there is not enough memory to read it")
        with _rust(f"{path} is not a valid tokenizer.json"):
            self._tokenizer = tokenizers.Tokenizer.from_buffer(text)
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            if getattr(self._tokenizer.model, "dropout", None) is not None:
                self._tokenizer.model.dropout = None  # for training: tokens would be drawn
            self._add_missing(files)
            self._ends = _SequenceEnds(self._tokenizer, files)
            self._decoder = _spec(self._tokenizer.decoder)
            check_growth(path, "normalizer", _spec(self._tokenizer.normalizer))
            check_growth(path, "decoder", self._decoder)
            check_template(path, _spec(self._tokenizer.post_processor))
            added = self._tokenizer.get_added_tokens_decoder()
            self._special = {token.content for token in added.values() if token.special}
            self._streamable = self._can_stream()
        self._tokens: dict[int, str | None] = {}
        self._longest = 0

    def _add_missing(self, files: TokenizerFiles) -> None:
        """Added tokens that the file lacks, and the special ones that it has as words alone: these
        keep their ids, and a text isn't cut inside of them."""
        added = list(files.added_tokens)
        known = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        named = [*files.special_tokens.values(), *files.additional_special_tokens]
        added += [
            AddedToken(name) for name in named if self._tokenizer.token_to_id(name) is not None
        ]
        missing = {
            token.content: tokenizers.AddedToken(
                token.content,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                single_word=token.single_word,
                normalized=token.normalized,
                special=token.special,
            )
            for token in reversed(added)  # of several of one name the first counts
            if token.content not in known
        }
        # All at once: each call takes as long as all tokens added so far.
        self._tokenizer.add_tokens(list(reversed(missing.values())))

    def _can_stream(self) -> bool:
        try:
            build_stages(self._decoder)
        except NotStreamable:
            return False
        return True

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if len(text) > _LONG_TEXT and not has_room(len(text) * _BYTES_PER_TEXT_BYTE):
            raise TokenizerError(
                f"there is not enough memory to tokenize a text of {len(text)} characters"
            )
        with _rust("cannot tokenize the text"):  # lone surrogates, or one the model can't represent
            if len(text) < _HELD_TEXT:
                encoding = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
            else:  # of several the package lets other threads have the GIL meanwhile
                (encoding,) = self._tokenizer.encode_batch_fast(
                    [text], add_special_tokens=add_special_tokens
                )
        ids: list[int] = encoding.ids
        return self._ends.apply(ids) if add_special_tokens else ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        known = [i for i in ids if 0 <= i < 1 << 32]
        with _rust("cannot decode the ids"):
            if len(known) < _HELD_IDS:
                text: str = self._tokenizer.decode(known, skip_special_tokens=skip_special_tokens)
            else:
                (text,) = self._tokenizer.decode_batch(
                    [known], skip_special_tokens=skip_special_tokens
                )
        return text

    def detokenizer(
        self,
        skip_special_tokens: bool,
        shown: frozenset[str] = frozenset(),
        after: Sequence[int] = (),
    ) -> Detokenizer:
        hidden: set[str] = set()
        if skip_special_tokens:
            hidden = self._special - shown if shown else self._special

        def token_of(token_id: int) -> str | None:
            token = self.token_of(token_id)
            return None if token in hidden else token

        last = next((i for i in reversed(after) if token_of(i) is not None), None)
        if not self._streamable:
            return WholeTextDetokenizer(
                lambda ids: self.decode([i for i in ids if token_of(i) is not None], False),
                [] if last is None else [last],
            )
        before = None if last is None else token_of(last)
        if before is not None and byte_of(before) is not None:
            before = "a"  # a run of bytes ends with the prompt
        return ChainDetokenizer(token_of, lambda: Chain(build_stages(self._decoder)), before)

    def token_text(self, token_id: int) -> str:
        token = self.token_of(token_id)
        if token is None:
            return ""
        if not self._streamable:
            return self.decode([token_id], skip_special_tokens=False)
        # After another token, so that what decoders do to the first one stays away.
        chain = Chain(build_stages(self._decoder))
        text = chain.push("a") + chain.push(token) + chain.finish()
        return text[1:]

    def part_bytes(self, token_id: int) -> bytes | None:
        token = self.token_of(token_id)
        if token is None or token in self._special or not self._streamable:
            return None
        return part_bytes(self._decoder, token)

    def token_of(self, token_id: int) -> str | None:
        if token_id not in self._tokens:
            known = token_id if 0 <= token_id < 1 << 32 else (1 << 32) - 1
            with _rust(f"cannot look up the id {token_id}"):
                self._tokens[token_id] = self._tokenizer.id_to_token(known)
        return self._tokens[token_id]

    def id_of(self, token: str) -> int | None:
        with _rust("cannot look up the token"):
            token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def token_bytes(self) -> TokenBytes:
        with _rust(f"{self._path}: cannot list the vocabulary"):
            added = self._tokenizer.get_added_tokens_decoder()
            special = {i: token.content for i, token in added.items() if token.special}
            vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
            largest = max(vocabulary.values(), default=0)
            if largest > MAX_TOKEN_ID:
                raise TokenizerError(
                    f"{self._path}: ids must be in 0..{MAX_TOKEN_ID}, got {largest}"
                )
            return chain_token_bytes(
                self._decoder, ((i, t) for t, i in vocabulary.items()), special
            )

    def size(self) -> int:
        size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        return size

    def longest_token(self) -> int:
        if not self._longest:
            with _rust(f"{self._path}: cannot list the vocabulary"):
                vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
            self._longest = max((len(token.encode()) for token in vocabulary), default=1)
        return self._longest


def _spec(part: Any) -> dict[str, Any] | None:
    """A part of the tokenizer as the package writes it."""
    return None if part is None else json.loads(part.__getstate__())


class _SequenceEnds:
    """add_bos_token and add_eos_token of tokenizer_config.json, over the file's own template."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, files: TokenizerFiles) -> None:
        self._bos = self._id(tokenizer, files.special_tokens.get("bos_token"))
        self._eos = self._id(tokenizer, files.special_tokens.get("eos_token"))
        self._add_bos = files.flag("add_bos_token")
        self._add_eos = files.flag("add_eos_token")

    @staticmethod
    def _id(tokenizer: tokenizers.Tokenizer, token: str | None) -> int | None:
        return None if token is None else tokenizer.token_to_id(token)

    def apply(self, ids: list[int]) -> list[int]:
        starts = bool(ids) and ids[0] == self._bos
        ends = bool(ids) and ids[-1] == self._eos
        if self._bos is not None and self._add_bos is not None and self._add_bos != starts:
            ids = [self._bos, *ids] if self._add_bos else ids[1:]
        if self._eos is not None and self._add_eos is not None and self._add_eos != ends:
            ids = [*ids, self._eos] if self._add_eos else ids[:-1]
        return ids


@contextlib.contextmanager
def _rust(doing: str) -> Iterator[None]:
    """The package raises bare Exception, and for a bug of its own a BaseException that can only be
    told by its name; both become a TokenizerError."""
    try:
        yield
    except (TokenizerError, UnsupportedError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{doing}: {shortened(str(error))}") from error
