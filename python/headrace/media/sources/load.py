"""One way in for whatever a caller passes as an image or a clip."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import MediaError
from headrace.media.limits import MediaLimits
from headrace.media.sources.data_url import decode_data_url
from headrace.media.sources.local_file import checked_folder, read_file_url, read_path
from headrace.media.sources.web import AllowedHosts, fetch, read_allowed_hosts
from headrace.quoting import quoted


@dataclass(frozen=True, slots=True)
class MediaAccess:
    """What addresses may reach. Without anything given: `data:` alone."""

    folder: Path | None = None
    hosts: AllowedHosts = field(default_factory=AllowedHosts)

    @classmethod
    def of(
        cls,
        allowed_local_media_path: str | os.PathLike[str] | None = None,
        allowed_media_domains: Iterable[str] | None = None,
    ) -> MediaAccess:
        """allowed_local_media_path: the folder of `file://` addresses. allowed_media_domains: the
        hosts of `http(s)://` addresses (sources/web.py). Raises TypeError, ValueError."""
        return cls(
            checked_folder(allowed_local_media_path), read_allowed_hosts(allowed_media_domains)
        )


def load_bytes(
    source: Any, modality: str, access: MediaAccess, limits: MediaLimits
) -> bytes | None:
    """The encoded bytes of bytes, of a path (os.PathLike: callers in Python alone have those) or of
    an address; None if `source` is nothing of these. Raises MediaError."""
    most = limits.max_bytes(modality)
    if isinstance(source, (bytes, bytearray, memoryview)):
        if isinstance(source, memoryview) and source.ndim != 1:
            return None
        limits.check_bytes(memoryview(source).nbytes, modality)
        return bytes(source)
    if isinstance(source, os.PathLike):
        return read_path(source, most)
    if not isinstance(source, str):
        return None
    scheme = source[:8].lower()
    if scheme.startswith("data:"):
        return _from_data_url(source, modality, most)
    if scheme.startswith("file:"):
        return read_file_url(source, access.folder, most)
    if is_fetched(source):
        return fetch(source, access.hosts, most, limits.fetch_seconds)
    raise MediaError(
        f"{quoted(source)} is no data:, file: or http(s): address; for a file, pass a pathlib.Path"
    )


def is_fetched(source: Any) -> bool:
    """Whether it is an address of the web."""
    return isinstance(source, str) and source[:8].lower().startswith(("http:", "https:"))


def _from_data_url(url: str, modality: str, most: int) -> bytes:
    media_type, data = decode_data_url(url, most)
    kind = media_type.split("/")[0]
    fits = (
        (modality, "application", "", "image")
        if modality == "video"
        else (modality, "application", "")
    )
    if kind not in fits:
        raise MediaError(f"the data: address has the type {quoted(media_type)}, no {modality}")
    return data
