"""FastDeploy's module path of `headrace.LLM`."""

from headrace.llm import LLM

__all__ = ["LLM"]
