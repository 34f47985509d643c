"""Items in their places among the ids of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.errors import MediaError
from headrace.media.item import Grid, MediaItem
from headrace.media.layout import Rows, item_pieces, lay_out
from headrace.media.model_settings import ModelSettings
from headrace.text.tokenizer import Tokenizer

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Run:
    """`count` of an item's rows, from `first` on, in place of the ids from `position` on. grid,
    steps: see layout.Rows."""

    position: int
    count: int
    first: int
    grid: Grid | None
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item of a prompt, and where its rows stand."""

    item: MediaItem
    runs: tuple[Run, ...]


def place_in_text(
    text: str,
    items: Sequence[MediaItem],
    model: ModelSettings,
    tokenizer: Tokenizer,
    encode: Encode,
    around: tuple[list[int], list[int]] = ([], []),
) -> tuple[list[int], list[PlacedItem]]:
    """The ids of a text that has a mark for each item (layout.lay_out), and the items in it.

    encode: of one of the texts between items. around: ids before and behind all of it. Raises
    MediaError.
    """
    images, videos = _by_modality(items)
    pieces = [around[0], *lay_out(text, images, videos, model), around[1]]
    return _joined(pieces, tokenizer, encode)


def place_in_ids(
    ids: Sequence[int], items: Sequence[MediaItem], model: ModelSettings, tokenizer: Tokenizer
) -> tuple[list[int], list[PlacedItem]]:
    """The same of a prompt that is ids already.

    A place is the mark as its tokens, one token that stands for a row, or as many of these as the
    item has rows; these may follow a mark that is no row. Where images and clips share that token,
    a prompt has one kind alone. Raises MediaError.
    """
    family = model.family
    queues = [list(group) for group in _by_modality(items)]
    marks: list[tuple[list[int], int, int]] = []  # ids of a mark, its pad's, whose queue
    for place, (text, token) in enumerate(
        ((family.image_mark, family.image_pad), (family.video_mark, family.video_pad))
    ):
        if queues[place]:
            marks.append((tokenizer.encode(text), _pad_id(tokenizer, token), place))
    if len({pad for _, pad, _ in marks}) < len(marks):
        raise MediaError(
            "images and clips have the same placeholder, so ids don't tell which is which: pass "
            "the prompt as text"
        )
    pieces: list[list[int] | str | Rows] = []
    position = 0
    while position < len(ids):
        for mark, pad, place in marks:
            length = _length_of_place(ids, position, mark, pad, queues[place])
            if length:
                is_mark = list(ids[position : position + len(mark)]) == mark
                pieces += item_pieces(queues[place].pop(0), model, rows_alone=not is_mark)
                position += length
                break
        else:
            if not pieces or not isinstance(pieces[-1], list):
                pieces.append([])
            plain = pieces[-1]
            assert isinstance(plain, list)
            plain.append(ids[position])
            position += 1
    for place, kind in enumerate(("image", "video")):
        if queues[place]:
            raise MediaError(
                f"the prompt's ids have no place for {len(queues[place])} of the items of the kind "
                f"{kind}"
            )
    return _joined(pieces, tokenizer, tokenizer.encode)


def _length_of_place(
    ids: Sequence[int], position: int, mark: list[int], pad: int, queue: list[MediaItem]
) -> int:
    """How many ids at `position` the next item takes the place of; 0: none. Raises MediaError."""
    behind = position + len(mark)
    if list(ids[position:behind]) == mark and (pad in mark or pad not in ids[behind : behind + 1]):
        length = len(mark)
    elif ids[position] == pad:
        length = 1
    else:
        return 0
    if not queue:
        raise MediaError("the prompt's ids have more places than there are items")
    rows = queue[0].rows
    if ids[position] == pad and rows > 1 and list(ids[position : position + rows]) == [pad] * rows:
        return rows
    return length


def _by_modality(items: Sequence[MediaItem]) -> tuple[list[MediaItem], list[MediaItem]]:
    images = [item for item in items if item.modality == "image"]
    return images, [item for item in items if item.modality == "video"]


def _joined(
    pieces: Sequence[list[int] | str | Rows], tokenizer: Tokenizer, encode: Encode
) -> tuple[list[int], list[PlacedItem]]:
    ids: list[int] = []
    found: list[tuple[MediaItem, list[Run]]] = []
    for piece in pieces:
        if isinstance(piece, str):
            ids += encode(piece)
        elif isinstance(piece, Rows):
            if piece.first == 0:
                found.append((piece.item, []))
            found[-1][1].append(
                Run(len(ids), piece.count, piece.first, piece.grid, tuple(piece.steps))
            )
            ids += [_pad_id(tokenizer, piece.pad)] * piece.count
        else:
            ids += piece
    return ids, [PlacedItem(item, tuple(runs)) for item, runs in found]


def added_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and behind a text of its own."""
    bare, whole = tokenizer.encode("a"), tokenizer.encode("a", True)
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    return [], []


def _pad_id(tokenizer: Tokenizer, pad: str) -> int:
    ids = tokenizer.encode(pad)
    if len(ids) != 1:
        raise MediaError(
            f"the tokenizer has no token {pad}, which stands for a row of an image: the model's "
            "tokenizer files don't fit its family"
        )
    return ids[0]


def rows_of(placed: Sequence[PlacedItem], modality: str) -> int:
    """The tokens that items of a modality take."""
    return sum(entry.item.rows for entry in placed if entry.item.modality == modality)
