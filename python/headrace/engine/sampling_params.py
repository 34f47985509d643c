"""FastDeploy's module path of the sampling parameters."""

from headrace.sampling_params import GuidedDecodingParams, SamplingParams

__all__ = ["GuidedDecodingParams", "SamplingParams"]
