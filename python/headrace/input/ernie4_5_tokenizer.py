"""FastDeploy's module path of the ERNIE-4.5 tokenizer."""

from headrace.text.tokenizer import Tokenizer

__all__ = ["Ernie4_5Tokenizer"]


class Ernie4_5Tokenizer(Tokenizer):
    """The tokenizer of an ERNIE-4.5 folder, from tokenizer.json or its sentencepiece model."""
