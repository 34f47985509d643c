"""What every loader offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from headrace.allspark.core.as_model_config import AsModelConfig
from headrace.allspark.generation_config import ASGenerationConfigBuilder
from headrace.allspark.runtime_config import AsModelRuntimeConfigBuilder
from headrace.text.callable_tokenizer import CallableTokenizer
from headrace.text.model_files import read_json
from headrace.text.tokenizer import Tokenizer


class LLM(ABC):
    """A model that an engine can install. Methods that return nothing else return self."""

    tokenizer: CallableTokenizer | None = None

    @abstractmethod
    def load_model(self, **kwargs: Any) -> LLM: ...

    @abstractmethod
    def read_model_config(self) -> LLM: ...

    @abstractmethod
    def init_quantization(
        self, enable: bool = True, customized_quant_config: dict[str, Any] | None = None
    ) -> LLM: ...

    @abstractmethod
    def _tokenizer_folder(self) -> Path: ...

    def init_tokenizer(self, padding_side: str = "left") -> LLM:
        """Reads the tokenizer, once. padding_side: "left" or "right", for its calls with padding.

        Raises TokenizerError.
        """
        if self.tokenizer is None:
            own = Tokenizer.from_pretrained(self._tokenizer_folder())
            self.tokenizer = CallableTokenizer(own, padding_side)
        return self

    def get_tokenizer(self) -> CallableTokenizer:
        """The tokenizer. Raises TokenizerError if the model has none."""
        self.init_tokenizer()
        assert self.tokenizer is not None
        return self.tokenizer

    @abstractmethod
    def get_model_config(self) -> dict[str, Any]:
        """The model's config.json."""

    @abstractmethod
    def get_model_context_length(self) -> int:
        """The longest prompt and output together that the model was made for."""

    @abstractmethod
    def create_reference_runtime_config_builder(
        self, *args: Any, **kwargs: Any
    ) -> AsModelRuntimeConfigBuilder: ...

    @abstractmethod
    def create_reference_generation_config_builder(
        self, runtimeConfig: AsModelConfig | None = None
    ) -> ASGenerationConfigBuilder: ...

    @abstractmethod
    def serialize_to_memory(self, engine: Any, *args: Any, **kwargs: Any) -> LLM: ...

    @abstractmethod
    def serialize_to_path(self, engine: Any, *args: Any, **kwargs: Any) -> LLM: ...

    def free_model(self) -> LLM:
        """Nothing to free: weights are mapped by the engine, never held here."""
        return self

    def free_memory_serialize_file(self) -> LLM:
        """Nothing to free: serialize_to_memory writes no file."""
        return self


def read_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json. Raises ValueError (TokenizerError) for a malformed one."""
    config = read_json(folder / "config.json")
    if not config:
        raise ValueError(f"{folder} has no config.json")
    return config
