"""Images in squares (SmolVLM, Idefics3): a grid of tiles, then the whole image as one tile."""

from __future__ import annotations

from headrace.errors import MediaError
from headrace.media.pictures import Picture
from headrace.media.settings import Settings
from headrace.media.sizes import LONGEST_TILED, longest_edge_size, tiled_size


def tiles_of(picture: Picture, settings: Settings) -> tuple[list[Picture], tuple[int, int]]:
    """The tiles, row by row, the whole image last; and the number of rows and columns.

    One tile and (0, 0) for an image that fits it, or without splitting. Resizes as transformers'
    processors do: to the longest edge, to multiples of a tile, the whole image from the latter.
    """
    tile = settings.tile
    if settings.do_resize:
        size = longest_edge_size(picture.height, picture.width, settings.longest_edge)
        picture = picture.resized(*size, settings.resample)
    if not settings.do_split:
        return [picture.resized(tile, tile, settings.resample)], (0, 0)
    if max(picture.height, picture.width) > LONGEST_TILED:
        raise MediaError(
            f"it has {picture.width} x {picture.height} pixels and do_resize is off: no side may "
            f"be longer than {LONGEST_TILED}"
        )
    picture = picture.resized(*tiled_size(picture.height, picture.width, tile), settings.resample)
    rows, columns = picture.height // tile, picture.width // tile
    if rows * columns == 1:
        return [picture], (0, 0)
    tiles = [
        picture.crop(row * tile, column * tile, tile, tile)
        for row in range(rows)
        for column in range(columns)
    ]
    return [*tiles, picture.resized(tile, tile, settings.resample)], (rows, columns)


def video_frame(picture: Picture, settings: Settings) -> Picture:
    """A frame of a clip: one tile, by way of the longest edge."""
    if settings.do_resize:
        size = longest_edge_size(picture.height, picture.width, settings.longest_edge)
        picture = picture.resized(*size, settings.resample)
    return picture.resized(settings.tile, settings.tile, settings.resample)
