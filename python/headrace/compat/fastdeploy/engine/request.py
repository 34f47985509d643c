"""FastDeploy's module path of the results."""

from headrace.llm.outputs import (
    CompletionOutput,
    Logprob,
    LogprobsLists,
    PromptLogprobs,
    RequestMetrics,
    RequestOutput,
    SampleLogprobs,
    SpeculateMetrics,
)

__all__ = [
    "CompletionOutput",
    "Logprob",
    "LogprobsLists",
    "PromptLogprobs",
    "RequestMetrics",
    "RequestOutput",
    "SampleLogprobs",
    "SpeculateMetrics",
]
