"""FastDeploy's module path of the ERNIE-4.5 tokenizer."""

from headrace.text.ernie_tokenizer import Ernie4_5Tokenizer

__all__ = ["Ernie4_5Tokenizer"]
