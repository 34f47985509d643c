"""What decoding a JPEG costs beside its pixels."""

from __future__ import annotations

import re

from headrace.errors import MediaError

_MOST_SCANS = 32
_START_OF_SCAN = 0xDA
# Those with a length behind them: not stuffing, fill bytes, TEM, restarts and the start of a file.
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])")
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def check_scans(data: bytes) -> None:
    """Each scan of a progressive JPEG costs a pass over the whole image, and a few bytes are enough
    for one. Raises MediaError for more than 32; encoders make about 10."""
    at, has_one_scan, components = 2, False, 0
    while found := _MARKER.search(data, at):
        at = found.end()
        kind = found[1][0]
        body = data[at + 2 : at + 8]
        if kind in _FRAMES and len(body) == 6:
            has_one_scan, components = kind <= 0xC1, body[5]
        if kind == _START_OF_SCAN:
            # All components at once: the decoder stops behind this scan.
            if has_one_scan and body[:1] == bytes([components]):
                return
            count = data.count(b"\xff\xda", found.start())
            if count > _MOST_SCANS:
                raise MediaError(f"it has {count} scans, more than {_MOST_SCANS}: save it anew")
            return
        at += int.from_bytes(data[at : at + 2], "big")
