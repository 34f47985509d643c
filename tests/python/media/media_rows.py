"""Items with a grid and nothing in them, for what only looks at grids."""

from __future__ import annotations

from headrace.media import Grid, MediaItem, ModelSettings


def rows_of(
    modality: str, grid: Grid, model: ModelSettings, second_per_grid: float, rate: float = 1.0
) -> MediaItem:
    settings = model.video if modality == "video" else model.image
    pair = settings.temporal_merge_size if modality == "video" else 1
    merge = settings.merge_size
    return MediaItem(
        modality,
        b"",
        grid.t * settings.temporal_patch_size,
        grid.h * settings.patch_size,
        grid.w * settings.patch_size,
        grid,
        settings.patch_size,
        merge,
        settings.temporal_patch_size,
        settings.table(),
        Grid(grid.t // pair, grid.h // merge, grid.w // merge),
        b"",
        second_per_grid,
        tuple(i * rate for i in range(grid.t)) if modality == "video" else (),
    )
