"""tokenizer.model, by the `sentencepiece` package, for folders without a tokenizer.json.

Special and added tokens are cut out of the text first; what lies between them is encoded and
decoded by sentencepiece, each stretch on its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from headrace.errors import TokenizerError
from headrace.quoting import shortened
from headrace.text.decoders import byte_of
from headrace.text.detokenizer import Detokenizer
from headrace.text.headroom import has_room
from headrace.text.model_files import read_bytes
from headrace.text.token_bytes import NEVER, TokenBytes
from headrace.text.tokenizer_files import TokenizerFiles

MAX_FILE_BYTES = 64 << 20
_BYTES_PER_FILE_BYTE = 16
_SPACE = "\u2581"
_UNKNOWN = "\ufffd"


class SentencePieceBackend:
    """A sentencepiece model with the added and special tokens of the folder."""

    def __init__(self, path: Path, files: TokenizerFiles) -> None:
        """Raises TokenizerError, which names the file."""
        data = read_bytes(path, MAX_FILE_BYTES)
        if not data:
            raise TokenizerError(f"{path} is not a sentencepiece model: it is empty")
        if not has_room(len(data) * _BYTES_PER_FILE_BYTE + (8 << 20)):
            raise TokenizerError(f"{path}: there is not enough memory to read it")
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=data)
            self._base_size = int(self._model.vocab_size())
        except Exception as error:  # OSError or RuntimeError, depending on the package's version
            what = shortened(str(error))
            raise TokenizerError(f"{path} is not a sentencepiece model: {what}") from error
        self._longest = 0
        self._ids: dict[str, int] = {}  # tokens cut out of the text
        self._special: set[int] = set()
        self._collect(files)
        self._names = {token_id: token for token, token_id in self._ids.items()}
        tokens = sorted(self._ids, key=len, reverse=True)
        self._splitter = re.compile("|".join(map(re.escape, tokens))) if tokens else None
        self._style = _Style(self._model, files)
        self._bos = self._ids.get(files.special_tokens.get("bos_token", ""))
        self._eos = self._ids.get(files.special_tokens.get("eos_token", ""))
        llama = str(files.config.get("tokenizer_class", "")).startswith(("Llama", "CodeLlama"))
        self._add_bos = (
            llama if files.flag("add_bos_token") is None else files.flag("add_bos_token")
        )
        self._add_eos = bool(files.flag("add_eos_token"))

    def _collect(self, files: TokenizerFiles) -> None:
        for token in files.added_tokens:
            if token.id is not None:
                self._ids[token.content] = token.id
                if token.special:
                    self._special.add(token.id)
        for content in [*files.special_tokens.values(), *files.additional_special_tokens]:
            token_id = self._ids.get(content)
            if token_id is None:
                token_id = self._base_id(content)
            if token_id is not None:
                self._ids[content] = token_id
                self._special.add(token_id)

    def _base_id(self, token: str) -> int | None:
        token_id = int(self._model.piece_to_id(token))
        return token_id if self._model.id_to_piece(token_id) == token else None

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = []
        if add_special_tokens and self._add_bos and self._bos is not None:
            ids.append(self._bos)
        place = 0
        for match in self._splitter.finditer(text) if self._splitter else ():
            ids += self._style.encode(text[place : match.start()], is_first=place == 0)
            ids.append(self._ids[match.group()])
            place = match.end()
        ids += self._style.encode(text[place:], is_first=place == 0)
        if add_special_tokens and self._add_eos and self._eos is not None:
            ids.append(self._eos)
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        detokenizer = self.detokenizer(skip_special_tokens)
        texts = [detokenizer.push(token_id) for token_id in ids]
        return "".join(texts) + detokenizer.finish()

    def detokenizer(
        self,
        skip_special_tokens: bool,
        shown: frozenset[str] = frozenset(),
        after: Sequence[int] = (),
    ) -> Detokenizer:
        return _PieceDetokenizer(self, skip_special_tokens, shown, self._starts_behind(after))

    def _starts_behind(self, ids: Sequence[int]) -> bool:
        """Whether what follows is at the start of a stretch: so it is behind a special token."""
        for token_id in reversed(ids):
            if self.cut_out(token_id) is not None:
                return True
            if self.byte_of(token_id) is not None or self.ends_start(token_id):
                return False
        return True

    def ends_start(self, token_id: int) -> bool:
        """Of a piece at the start of a stretch: whether what follows isn't at the start."""
        if self.piece_text(token_id, at_start=True):
            return True
        return self.token_of(token_id) == _SPACE and not self.drops_every_leading_space

    def token_text(self, token_id: int) -> str:
        if token_id in self._names:
            return self._names[token_id]
        if self.byte_of(token_id) is not None:
            return self.decode([token_id], skip_special_tokens=False)
        return self.piece_text(token_id)

    def part_bytes(self, token_id: int) -> bytes | None:
        byte = None if token_id in self._names else self.byte_of(token_id)
        return None if byte is None else bytes([byte])

    def token_of(self, token_id: int) -> str | None:
        if token_id in self._names:
            return self._names[token_id]
        return self._model.id_to_piece(token_id) if self._has(token_id) else None

    def id_of(self, token: str) -> int | None:
        return self._ids[token] if token in self._ids else self._base_id(token)

    def size(self) -> int:
        return max(self._base_size, *(token_id + 1 for token_id in self._ids.values()), 0)

    def longest_token(self) -> int:
        if not self._longest:
            pieces = (self._model.id_to_piece(i) for i in range(self._base_size))
            self._longest = max(len(token.encode()) for token in (*pieces, *self._ids, " "))
        return self._longest

    def _has(self, token_id: int) -> bool:
        return 0 <= token_id < self._base_size

    def token_bytes(self) -> TokenBytes:
        out = TokenBytes([b""] * self.size(), special=dict(self._names), special_restarts=True)
        for token_id in range(self._base_size):
            byte = self.byte_of(token_id)
            if token_id in self._names or self._model.is_unknown(token_id):
                continue
            if byte is not None:
                out.tokens[token_id] = bytes([byte])
                continue
            later = self.piece_text(token_id).encode("utf-8", "replace")
            first = self.piece_text(token_id, at_start=True).encode("utf-8", "replace")
            out.tokens[token_id] = later
            if first != later:
                # Without every leading space, the start goes on behind one.
                lost = not first and self.drops_every_leading_space
                out.first[token_id] = NEVER if lost else first
        return out

    def cut_out(self, token_id: int) -> str | None:
        """The text of a special or added token, None for any other id."""
        return self._names.get(token_id)

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special

    def byte_of(self, token_id: int) -> int | None:
        if not self._has(token_id) or not self._model.is_byte(token_id):
            return None
        return byte_of(self._model.id_to_piece(token_id))

    def piece_text(self, token_id: int, at_start: bool = False) -> str:
        """The text of a piece of a stretch, at its start or later."""
        return self._style.piece_text(token_id, at_start) if self._has(token_id) else ""

    @property
    def drops_every_leading_space(self) -> bool:
        return self._style.drops_every_leading_space


class _Style:
    """How a model treats the space at the start of a stretch. Read off its answers."""

    def __init__(self, model: sentencepiece.SentencePieceProcessor, files: TokenizerFiles) -> None:
        self._model = model
        word = next(
            (
                i
                for i in range(model.vocab_size())
                if model.id_to_piece(i).startswith(_SPACE)
                and len(model.id_to_piece(i)) > 1
                and not model.is_control(i)
                and not model.is_unknown(i)
            ),
            None,
        )
        space = model.piece_to_id(_SPACE)
        has_space = model.id_to_piece(space) == _SPACE
        self._drops_space = word is None or not model.decode([word]).startswith(" ")
        self.drops_every_leading_space = (
            word is not None and has_space and not model.decode([space, word]).startswith(" ")
        )
        self._unknown_text = model.decode([model.unk_id()]) if model.unk_id() >= 0 else ""
        # Without "legacy" only the first stretch of a text gets the dummy space in front.
        self._first_only = files.config.get("legacy") is False
        self._anchor = files.special_tokens.get("unk_token", "<unk>")
        self._anchor_length = len(model.encode(self._anchor)) if self._first_only else 0

    def encode(self, text: str, is_first: bool) -> list[int]:
        if not text:
            return []
        try:
            if is_first or not self._first_only:
                return [int(i) for i in self._model.encode(text)]
            ids = self._model.encode(self._anchor + text)
            return [int(i) for i in ids[self._anchor_length :]]
        except Exception as error:  # which one depends on the package's version
            raise TokenizerError(f"cannot tokenize the text: {shortened(str(error))}") from error

    def piece_text(self, token_id: int, at_start: bool) -> str:
        model = self._model
        if model.is_control(token_id):
            return ""
        if model.is_unknown(token_id):
            return str(self._unknown_text)
        piece: str = model.id_to_piece(token_id)
        if at_start and self._drops_space and piece.startswith(_SPACE):
            piece = piece[1:]
        return piece.replace(_SPACE, " ")


class _PieceDetokenizer:
    """Sentencepiece's decoding rules, one id at a time."""

    __slots__ = ("_at_start", "_backend", "_bytes", "_shown", "_skip_special")

    def __init__(
        self,
        backend: SentencePieceBackend,
        skip_special: bool,
        shown: frozenset[str],
        at_start: bool,
    ) -> None:
        self._backend = backend
        self._skip_special = skip_special
        self._shown = shown
        self._bytes = bytearray()
        self._at_start = at_start

    def push(self, token_id: int) -> str:
        backend = self._backend
        token = backend.cut_out(token_id)
        if token is not None:
            held = self.finish()
            self._at_start = True
            hidden = (
                self._skip_special and backend.is_special(token_id) and token not in self._shown
            )
            return held if hidden else held + token
        byte = backend.byte_of(token_id)
        if byte is not None:
            self._bytes.append(byte)
            self._at_start = False
            return self._settled_bytes()
        held = self.finish()
        text = backend.piece_text(token_id, self._at_start)
        self._at_start = self._at_start and not backend.ends_start(token_id)
        return held + text

    def finish(self) -> str:
        held = _UNKNOWN * len(self._bytes)
        self._bytes.clear()
        return held

    @property
    def holding(self) -> bool:
        return bool(self._bytes)

    def _settled_bytes(self) -> str:
        """Whole characters and bytes that can't begin one, off the front of the run."""
        settled = []
        while self._bytes:
            try:
                settled.append(self._bytes.decode("utf-8"))
                self._bytes.clear()
            except UnicodeDecodeError as error:
                if error.reason == "unexpected end of data":
                    break
                settled.append(_UNKNOWN)
                del self._bytes[0]
        return "".join(settled)
