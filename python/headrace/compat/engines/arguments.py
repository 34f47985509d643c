"""What vLLM's engines are made from."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from headrace.errors import UnsupportedError
from headrace.options.arg_checks import warn_caller
from headrace.options.engine_args import EngineArgs
from headrace.options.output_kind import RequestOutputKind
from headrace.options.sampling_params import SamplingParams
from headrace.quoting import quoted

_THREADS = "the engine runs in threads of this process"
# Values that say what is so in any case, and why others have no effect.
_NO_EFFECT: dict[str, tuple[Any, str]] = {
    "usage_context": (None, "nothing is reported about usage"),
    "stat_loggers": (None, "LLM.stats tells the numbers"),
    "enable_multiprocessing": (False, _THREADS),
    "start_engine_loop": (True, _THREADS),
}


def engine_keywords(args: EngineArgs, others: Mapping[str, Any]) -> dict[str, Any]:
    """Those of LLM and AsyncLLM, with log-probabilities for requests that ask for them.

    others: vLLM's further arguments of from_engine_args. Warns of what has no effect; raises
    TypeError for what vLLM doesn't have either.
    """
    for name, value in others.items():
        if name not in _NO_EFFECT:
            raise TypeError(f"from_engine_args has no argument {quoted(name)}")
        usual, reason = _NO_EFFECT[name]
        if (value and value != usual) or (value is False and usual is True):
            warn_caller(f"{name}={quoted(value)} has no effect: {reason}")
    given = {item.name: getattr(args, item.name) for item in fields(args)}
    return {**given, "enable_logprob": True}


def cumulative(params: SamplingParams) -> SamplingParams:
    """With vLLM's default: an update has everything so far."""
    if params.output_kind is not None:
        return params
    chosen = copy.copy(params)
    chosen.output_kind = RequestOutputKind.CUMULATIVE
    return chosen


def check_left_out(arguments: Mapping[str, Any], missing: Mapping[str, str]) -> None:
    """Raises UnsupportedError for arguments of vLLM's that would need something that isn't there,
    and TypeError for unknown ones. `missing`: what each would need."""
    for name, value in arguments.items():
        if name not in missing:
            raise TypeError(f"there is no argument {quoted(name)}")
        if value:
            raise UnsupportedError(
                f"{name}={quoted(value)}: Headrace does not have {missing[name]}"
            )
