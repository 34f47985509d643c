"""How the prompts of one model come to their images and clips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headrace.errors import MediaError
from headrace.media.cache import MediaCache
from headrace.media.item import MediaItem
from headrace.media.limits import MediaLimits
from headrace.media.model_settings import ModelSettings, read_model_settings
from headrace.media.options import with_options, without_synonyms
from headrace.media.parts import MediaPart, check_counts
from headrace.media.pictures import is_array
from headrace.media.processor import MediaProcessor, numbered
from headrace.media.requests.conversation import ContentForm, Render, content_form
from headrace.media.requests.loading import Loader, Loading, RowBudget
from headrace.media.sources.load import MediaAccess, is_fetched

_KEPT_FORMS = 32


class MediaReader:
    """A model's processor, its threads, and what LLM(...) allows. For any number of threads.

    limits: `limit_mm_per_prompt`, read. item_limits: of each item, but for its rows. most_rows: of
        the items of a prompt, in all.
    """

    def __init__(
        self,
        settings: ModelSettings,
        options: Mapping[str, Any] | None = None,
        *,
        limits: Mapping[str, int] | None = None,
        item_limits: MediaLimits | None = None,
        access: MediaAccess | None = None,
        cache_bytes: int = 0,
        most_rows: int = 1 << 31,
    ) -> None:
        self.settings = settings
        self.cache = MediaCache(cache_bytes)
        self._loader = Loader()
        self._processor = MediaProcessor(
            settings,
            options,
            access=access,
            # Before anything is resized: how large, a prompt's own options say.
            limits=replace(item_limits or MediaLimits(), max_rows=most_rows),
            cache=self.cache,
            decode=self._loader.decode,
            check=self._loader.check,
        )
        self._limits = limits
        self._most_rows = most_rows
        self._forms: dict[str, ContentForm] = {}

    @classmethod
    def of_folder(cls, folder: Path, options: Mapping[str, Any] | None, **more: Any) -> MediaReader:
        """Raises UnsupportedError, MediaError (read_model_settings), and TypeError or ValueError
        for options that the model can't take."""
        return cls(read_model_settings(folder), options, **more)

    def begin(
        self, parts: Sequence[MediaPart], options: Mapping[str, Any] | None = None
    ) -> Loading:
        """Starts to load the items of a prompt. options: its own `mm_processor_kwargs`.

        Raises ValueError for more items than there may be, TypeError and ValueError for options.
        """
        check_counts(parts, self._limits)
        self.check_options(options)
        names = {
            kind: numbered(kind, sum(part.modality == kind for part in parts))
            for kind in ("image", "video")
        }
        budget = RowBudget(self._most_rows)
        return self._loader.begin(
            (
                partial(self._load, part, options, next(names[part.modality]), budget),
                is_fetched(part.source),
            )
            for part in parts
        )

    def check_options(self, options: Mapping[str, Any] | None) -> None:
        """`mm_processor_kwargs` of a prompt. Raises TypeError, ValueError."""
        for modality, base in (("image", self.settings.image), ("video", self.settings.video)):
            with_options(base, modality, options)

    def has_mark(self, text: str) -> bool:
        """Whether a text has a place for an item."""
        return any(mark in text for mark in self.settings.family.marks)

    def _load(
        self, part: MediaPart, options: Mapping[str, Any] | None, name: str, budget: RowBudget
    ) -> MediaItem:
        own = dict(part.options)
        fps = own.pop("fps", None) if _is_given_frames(part) else None
        both = {**without_synonyms(options or {}, own), **own} or None
        try:
            if part.modality == "image":
                item = self._processor.image(part.source, uuid=part.uuid, options=both, name=name)
            else:
                item = self._processor.video(
                    part.source, uuid=part.uuid, options=both, fps=fps, name=name
                )
        except ImportError as error:  # of Pillow, or of PyAV
            raise MediaError(f"{name}: {error}") from error
        return budget.take(item)

    def form(self, template: str, render: Render) -> ContentForm:
        """What a chat template takes; `render` renders it, the first time."""
        known = self._forms.get(template)
        if known is None:
            if len(self._forms) >= _KEPT_FORMS:
                self._forms.clear()
            known = self._forms[template] = content_form(render, self.settings.family)
        return known

    def close(self) -> None:
        """Nothing more is loaded, and the cache is emptied. Idempotent."""
        self._loader.close()
        self.cache.clear()


def _is_given_frames(part: MediaPart) -> bool:
    return is_array(part.source) or isinstance(part.source, (list, tuple))
