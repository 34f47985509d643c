"""vLLM's module path of the sampling parameters."""

from headrace.options.sampling_params import (
    BeamSearchParams,
    GuidedDecodingParams,
    SamplingParams,
    StructuredOutputsParams,
)

__all__ = ["BeamSearchParams", "GuidedDecodingParams", "SamplingParams", "StructuredOutputsParams"]
