"""FastDeploy's module path of the log-probability types."""

from headrace.llm.outputs import (
    Logprob,
    LogprobsLists,
    PromptLogprobs,
    SampleLogprobs,
    SpeculateMetrics,
)

__all__ = ["Logprob", "LogprobsLists", "PromptLogprobs", "SampleLogprobs", "SpeculateMetrics"]
