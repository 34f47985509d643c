"""tokenizer.json, by the `tokenizers` package."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from headrace.errors import TokenizerError
from headrace.text.decoders import Chain, NotStreamable, build_stages
from headrace.text.detokenizer import ChainDetokenizer, Detokenizer, WholeTextDetokenizer
from headrace.text.token_bytes import TokenBytes, chain_token_bytes
from headrace.text.tokenizer_files import AddedToken, TokenizerFiles

_SUBWORD_PREFIX = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')


def _check_subword_prefix(path: Path) -> None:
    """The package ends the process over a BPE model whose merges lack its own subword prefix."""
    text = path.read_bytes()
    if not _SUBWORD_PREFIX.search(text):
        return
    try:
        model = json.loads(text)["model"]
        prefix = model["continuing_subword_prefix"]
        if model.get("type", "BPE") != "BPE" or not prefix:
            return
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge
                 for merge in model["merges"]]  # fmt: skip
        fits = all(second.startswith(prefix) for _, second in pairs)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{path} is not a valid tokenizer.json: {error!r}") from error
    if not fits:
        raise TokenizerError(
            f"{path} is not a valid tokenizer.json: its merges do not carry its "
            f"continuing_subword_prefix {prefix!r}"
        )


class FastBackend:
    """A tokenizer.json, completed by the added tokens of tokenizer_config.json."""

    def __init__(self, path: Path, files: TokenizerFiles) -> None:
        _check_subword_prefix(path)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises bare Exception for a malformed file
            raise TokenizerError(f"{path} is not a valid tokenizer.json: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._add_missing(files.added_tokens)
        self._ends = _SequenceEnds(self._tokenizer, files)
        decoder = self._tokenizer.decoder
        self._decoder = None if decoder is None else json.loads(decoder.__getstate__())
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {token.content for token in added.values() if token.special}
        self._streamable = self._can_stream()
        self._tokens: dict[int, str | None] = {}

    def _add_missing(self, added: Sequence[AddedToken]) -> None:
        for token in added:
            if self._tokenizer.token_to_id(token.content) is not None:
                continue
            self._tokenizer.add_tokens(
                [
                    tokenizers.AddedToken(
                        token.content,
                        lstrip=token.lstrip,
                        rstrip=token.rstrip,
                        single_word=token.single_word,
                        normalized=token.normalized,
                        special=token.special,
                    )
                ]
            )

    def _can_stream(self) -> bool:
        try:
            build_stages(self._decoder)
        except NotStreamable:
            return False
        return True

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        try:
            encoding = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except BaseException as error:  # lone surrogates, or a text the model can't represent
            raise _as_tokenizer_error(error, "tokenize the text") from error
        ids: list[int] = encoding.ids
        return self._ends.apply(ids) if add_special_tokens else ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        known = [i for i in ids if i >= 0]
        try:
            text: str = self._tokenizer.decode(known, skip_special_tokens=skip_special_tokens)
        except BaseException as error:
            raise _as_tokenizer_error(error, "decode the ids") from error
        return text

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        if not self._streamable:
            return WholeTextDetokenizer(lambda ids: self.decode(ids, skip_special_tokens))
        token_of = self._shown_token if skip_special_tokens else self.token_of
        return ChainDetokenizer(token_of, Chain(build_stages(self._decoder)))

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

    def token_of(self, token_id: int) -> str | None:
        if token_id not in self._tokens:
            known = token_id if token_id >= 0 else 2**32 - 1
            self._tokens[token_id] = self._tokenizer.id_to_token(known)
        return self._tokens[token_id]

    def _shown_token(self, token_id: int) -> str | None:
        token = self.token_of(token_id)
        return None if token in self._special else token

    def id_of(self, token: str) -> int | None:
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def token_bytes(self) -> TokenBytes:
        added = self._tokenizer.get_added_tokens_decoder()
        special = {i: token.content for i, token in added.items() if token.special}
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        return chain_token_bytes(self._decoder, ((i, t) for t, i in vocabulary.items()), special)

    def size(self) -> int:
        size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        return size


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


def _as_tokenizer_error(error: BaseException, doing: str) -> BaseException:
    """Rust panics reach Python as a BaseException that can only be told by its name."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return TokenizerError(f"cannot {doing}: {error}")
    return error
