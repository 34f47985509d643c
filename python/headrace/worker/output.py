"""FastDeploy's module path of the log-probability types."""

from headrace.outputs import Logprob, LogprobsLists, PromptLogprobs, SampleLogprobs

__all__ = ["Logprob", "LogprobsLists", "PromptLogprobs", "SampleLogprobs"]
