"""Images and clips: from what a caller passes to patches, a grid, and places in a prompt.

    model = read_model_settings("path/to/model")
    processor = MediaProcessor(model, cache=MediaCache(256 << 20))
    item = processor.image(Path("picture.jpg"))
    item.patches(), item.grid, item.key

requests/ is what prompts use of it. Images need Pillow (the extra
`vision`), video files PyAV as well (`video`); arrays of uint8 need neither.
"""

from headrace.media.cache import MediaCache
from headrace.media.families import Family, family_of
from headrace.media.item import Grid, MediaItem
from headrace.media.layout import RopePositions, Rows, item_pieces, lay_out, rope_positions
from headrace.media.limits import MediaLimits
from headrace.media.model_settings import ModelSettings, read_model_settings
from headrace.media.parts import (
    MediaPart,
    check_counts,
    read_multimodal_data,
    read_part,
)
from headrace.media.processor import MediaProcessor, numbered
from headrace.media.sources.load import MediaAccess
from headrace.options.media import read_limits

__all__ = [
    "Family",
    "Grid",
    "MediaAccess",
    "MediaCache",
    "MediaItem",
    "MediaLimits",
    "MediaPart",
    "MediaProcessor",
    "ModelSettings",
    "RopePositions",
    "Rows",
    "check_counts",
    "family_of",
    "item_pieces",
    "lay_out",
    "numbered",
    "read_limits",
    "read_model_settings",
    "read_multimodal_data",
    "read_part",
    "rope_positions",
]
