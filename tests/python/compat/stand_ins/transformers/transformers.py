"""AutoTokenizer over Headrace's tokenizer."""

from typing import Any

from headrace.text.callable_tokenizer import CallableTokenizer
from headrace.text.tokenizer import Tokenizer

__version__ = "4.57.0"


class AutoTokenizer:
    @staticmethod
    def from_pretrained(
        path: str, padding_side: str = "right", trust_remote_code: bool = False
    ) -> Any:
        return CallableTokenizer(Tokenizer.from_pretrained(path), padding_side)
