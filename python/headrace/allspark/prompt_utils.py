"""DashInfer's module path of `PromptTemplate`."""

from headrace.compat.allspark.prompt_utils import (
    PromptTemplate,
)

__all__ = [
    "PromptTemplate",
]
