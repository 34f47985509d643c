"""`data:` addresses (RFC 2397)."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from headrace.errors import MediaError

_LONGEST_HEAD = 1024
_PART = 1 << 14
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


def decode_data_url(url: str, max_bytes: int) -> tuple[str, bytes]:
    """The media type, in lower case and without parameters ("" if there is none), and the data.

    Base64 data may lack its padding and hold whitespace, as browsers allow. Raises MediaError for
    what is malformed or decodes to more than `max_bytes`; looks at the length first.
    """
    comma = url.find(",", 5, _LONGEST_HEAD)
    if url[:5].lower() != "data:" or comma < 0:
        raise MediaError("a data: address must read data:TYPE;base64,DATA, and has no comma")
    parts = url[5:comma].split(";")
    media_type = parts[0].strip().lower()
    if media_type and not _MEDIA_TYPE.fullmatch(media_type):
        raise MediaError("the data: address has a malformed media type")
    is_base64 = len(parts) > 1 and parts[-1].strip().lower() == "base64"
    length = len(url) - comma - 1
    if length > (4 * max_bytes + 8 if is_base64 else 3 * max_bytes):
        raise MediaError(f"the data: address has {length} characters: more than {max_bytes} bytes")
    if not url.isascii():
        raise MediaError("the data: address has characters outside of ASCII")
    data = _unquoted(url, comma + 1)
    if is_base64:
        data = _base64(data)
    if len(data) > max_bytes:
        raise MediaError(f"the data: address holds {len(data)} bytes, more than {max_bytes}")
    if not data:
        raise MediaError("the data: address holds no data")
    return media_type, data


def _unquoted(url: str, start: int) -> bytes:
    """The rest of `url`, unquoted part by part: many escapes at once would take many times as much
    memory as they are long."""
    if url.find("%", start) < 0:
        return url[start:].encode("ascii")
    data = bytearray()
    while start < len(url):
        end = start + _PART
        cut = url.find("%", end - 2, end)  # an escape that the part's end would cut in two
        end = end if cut < 0 else cut
        data += unquote_to_bytes(url[start:end])
        start = end
    return bytes(data)


def _base64(text: bytes) -> bytes:
    stripped = text.translate(None, b" \t\n\r\f\v").rstrip(b"=")
    try:
        return base64.b64decode(stripped + b"=" * (-len(stripped) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MediaError(f"the data: address is no base64: {error}") from None
