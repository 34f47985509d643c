"""Whether an answer comes in pieces, and with which extras."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError


@dataclass(slots=True)
class StreamOptions:
    """wanted: the answer comes in pieces. include_usage: a last piece holds the token counts.

    continuous_usage: each piece holds the counts so far.
    include_timings: the last piece also says how fast the engine was.
    """

    wanted: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    include_timings: bool = False


def read_stream_options(body: Body) -> StreamOptions:
    """Takes stream and stream_options. Raises ProtocolError."""
    wanted = body.flag("stream") or False
    given = body.mapping("stream_options")
    if given is None:
        return StreamOptions(wanted)
    if not wanted:
        raise ProtocolError("stream_options needs stream: true", "stream_options")
    options = Body(given, "stream_options")
    usage = options.flag("include_usage") or False
    continuous = options.flag("continuous_usage_stats") or False
    timings = options.flag("include_timings") or False
    if timings and not usage:
        raise ProtocolError(
            "stream_options.include_timings needs include_usage: true: they come in one piece",
            "stream_options.include_timings",
        )
    options.note("include_obfuscation", "pieces are not padded", False)
    options.finish()
    body.notes.extend(options.notes)
    return StreamOptions(wanted, usage, usage and continuous, timings)
