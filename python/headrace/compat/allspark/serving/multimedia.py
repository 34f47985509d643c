"""MultiMediaInfo: media of a request, collected but not yet served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.compat.allspark.enums import AsStatus


class MultiMediaInfo:
    """Collects what a request would show the model beside text.

    This version runs text models: start_request refuses a request that has one.
    """

    def __init__(self) -> None:
        self.multimedia_type = 0
        self.content: dict[str, list[Any]] = {}

    def set_multimedia_type(self, multimedia_type: int) -> None:
        self.multimedia_type = int(multimedia_type)

    def add_multimedia_content(self, key: str, dltensors: Sequence[Any]) -> AsStatus:
        """key: the placeholder's token id in decimal, "hash_input" or "positions"."""
        if not isinstance(key, str) or not key:
            return AsStatus.ALLSPARK_PARAM_ERROR
        self.content[key] = list(dltensors)
        return AsStatus.ALLSPARK_SUCCESS
