"""FastDeploy's module path of the sampling parameters. Its rule for seeds holds by FastDeploy's
name, not as headrace.engine.sampling_params.
"""

from __future__ import annotations

import os
import random

from headrace.options import sampling_params as own
from headrace.options.sampling_params import MAX_SEED, BeamSearchParams, GuidedDecodingParams

__all__ = ["BeamSearchParams", "GuidedDecodingParams", "SamplingParams"]


class SamplingParams(own.SamplingParams):
    """headrace's, with FastDeploy's rule for seeds: one is drawn when the object is made, can be
    read there, and holds for every prompt that the object is used for. It is 42 with
    FD_DETERMINISTIC_MODE=1. With LLM(seed=...), it gives way to seeds from there.
    """

    def _verify_args(self) -> None:
        if self.seed is None:
            self.seed = own.default_int(_drawn())
        super()._verify_args()


def _drawn() -> int:
    deterministic = os.environ.get("FD_DETERMINISTIC_MODE", "0") not in ("", "0")
    return 42 if deterministic else random.randint(0, MAX_SEED)


if __name__ == "headrace.engine.sampling_params":
    globals()["SamplingParams"] = own.SamplingParams
