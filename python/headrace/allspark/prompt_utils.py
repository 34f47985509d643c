"""PromptTemplate: ChatML without a model's own chat template."""

from __future__ import annotations

__all__ = [
    "PromptTemplate",
]

_CHATML = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n"
    "<|im_start|>assistant \n"
)


class PromptTemplate:
    @staticmethod
    def apply_chatml_template(inputs: str) -> str:
        """One question in ChatML, down to the space that the original has behind "assistant"."""
        return _CHATML.format(inputs)
