"""Images and clips of prompts, as the engine takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace import _core
from headrace.media.requests.placing import PlacedItem
from headrace.media.requests.reader import MediaReader
from headrace.media.sources.load import MediaAccess
from headrace.options.media import (
    MODALITIES,
    MOST_ITEMS,
    local_media_path,
    media_domains,
    processor_cache_bytes,
)


def engine_media_reader(info: _core.ModelInfo) -> MediaReader | None:
    """Of a model of Engine, without limits of its own; None: it reads text only. Addresses reach
    what the environment allows. Raises MediaError for files that can't be."""
    if not info.vision:
        return None
    return MediaReader.of_folder(
        Path(info.path),
        None,
        limits=dict.fromkeys(MODALITIES, MOST_ITEMS),
        access=MediaAccess.of(local_media_path(None), media_domains(None)),
        cache_bytes=processor_cache_bytes(-1),
        most_rows=info.max_model_len,
    )


def media_inputs(placed: Sequence[PlacedItem]) -> list[_core.MediaInput]:
    """As the engine takes them; several requests may share them."""
    return [_input(entry) for entry in placed]


def _input(placed: PlacedItem) -> _core.MediaInput:
    item = placed.item
    return _core.MediaInput(
        item.modality == "video",
        [
            _core.MediaRun(run.position, run.count, run.first, run.grid, run.steps)
            for run in placed.runs
        ],
        pixels=item.pixels,
        frames=item.frames,
        height=item.height,
        width=item.width,
        patch_size=item.patch_size,
        merge_size=item.merge_size,
        temporal_patch_size=item.temporal_patch_size,
        table=item.table,
        key=item.key,
    )
