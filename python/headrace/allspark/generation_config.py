"""ASGenerationConfigBuilder: how tokens of a request are chosen and when it ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "ASGenerationConfigBuilder",
    "GenerationConfigAdapter",
    "as_rand_max_int",
]

as_rand_max_int = 0x7FFFFFFF

_FROM_HF = (
    "top_k",
    "top_p",
    "do_sample",
    "early_stopping",
    "repetition_penalty",
    "length_penalty",
    "temperature",
    "min_length",
    "no_repeat_ngram_size",
    "eos_token_id",
)


class GenerationConfigAdapter:
    @staticmethod
    def from_hf(hf_gen_config: Any) -> dict[str, Any]:
        """What means something here of a Hugging Face GenerationConfig, or of a dict of its fields.

        A field that is left out, or None, keeps the engine's default.
        """
        values = {name: _field(hf_gen_config, name) for name in _FROM_HF}
        config = {name: value for name, value in values.items() if value is not None}
        return {**config, "presence_penalty": 0.0, "seed": random.randint(1, as_rand_max_int)}


def _field(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _setter(name: str) -> Callable[[ASGenerationConfigBuilder, Any], ASGenerationConfigBuilder]:
    def set_field(self: ASGenerationConfigBuilder, value: Any) -> ASGenerationConfigBuilder:
        return self.update({name: value})

    set_field.__name__ = name
    set_field.__doc__ = f"Sets {name}."
    return set_field


class ASGenerationConfigBuilder:
    """Collects generation parameters; `build()` gives them as a dict. Every setter returns self.

        builder = ASGenerationConfigBuilder().max_length(512).temperature(0.7).top_k(50)

    hf_gen_config: a GenerationConfig of transformers, or a dict of its fields. Its max_length and
        max_new_tokens are ignored; do_sample and early_stopping are on.
    seed: None draws a fresh one for each `build()`, so for each request.
    eos_token_id: without `hf_gen_config`; 0 means the model's own.
    """

    def __init__(
        self, hf_gen_config: Any = None, seed: int | None = None, eos_token_id: int = 0
    ) -> None:
        self.dict_store: dict[str, Any] = {"do_sample": True, "eos_token_id": eos_token_id}
        if hf_gen_config is not None:
            if (_field(hf_gen_config, "num_return_sequences") or 1) != 1:
                raise ValueError("num_return_sequences other than 1 is not supported")
            self.dict_store = GenerationConfigAdapter.from_hf(hf_gen_config)
            del self.dict_store["seed"]
            self.process_eos_tokens(_field(hf_gen_config, "eos_token_id"), self.dict_store)
            self.do_sample().early_stopping()
        if seed is not None:
            self.dict_store["seed"] = seed

    @staticmethod
    def process_eos_tokens(hf_gen_config_token_id: Any, out_dict: dict[str, Any]) -> None:
        """Writes one id as eos_token_id; of several, the first, and all as stop_words_ids."""
        if isinstance(hf_gen_config_token_id, (list, tuple)) and hf_gen_config_token_id:
            out_dict["eos_token_id"] = hf_gen_config_token_id[0]
            out_dict["stop_words_ids"] = [[token] for token in hf_gen_config_token_id]
        elif isinstance(hf_gen_config_token_id, int):
            out_dict["eos_token_id"] = hf_gen_config_token_id

    def update(
        self, update_fields: Mapping[str, Any] | None = None, **fields: Any
    ) -> ASGenerationConfigBuilder:
        self.dict_store.update(update_fields or {}, **fields)
        return self

    def do_sample(self, flag: bool = True) -> ASGenerationConfigBuilder:
        """False chooses the likeliest token every time."""
        return self.update({"do_sample": flag})

    def early_stopping(self, flag: bool = True) -> ASGenerationConfigBuilder:
        """Whether EOS ends the request."""
        return self.update({"early_stopping": flag})

    def log_probs(self, enable_logprobs: bool, top_logprobs: int) -> ASGenerationConfigBuilder:
        """Whether to report log-probabilities, and of how many of the likeliest tokens (0..10)."""
        return self.update({"logprobs": enable_logprobs, "top_logprobs": top_logprobs})

    def with_mm_info(self, info: Any) -> ASGenerationConfigBuilder:
        return self.update({"mm_info": info})

    max_length = _setter("max_length")
    min_length = _setter("min_length")
    temperature = _setter("temperature")
    top_k = _setter("top_k")
    top_p = _setter("top_p")
    seed = _setter("seed")
    eos_token_id = _setter("eos_token_id")
    stop_words_ids = _setter("stop_words_ids")
    bad_words_ids = _setter("bad_words_ids")
    repetition_penalty = _setter("repetition_penalty")
    length_penalty = _setter("length_penalty")
    presence_penalty = _setter("presence_penalty")
    frequency_penalty = _setter("frequency_penalty")
    suppress_repetition_in_generation = _setter("suppress_repetition_in_generation")
    no_repeat_ngram_size = _setter("no_repeat_ngram_size")
    logprobs = _setter("logprobs")
    top_logprobs = _setter("top_logprobs")
    num_beams = _setter("num_beams")
    num_return_sequences = _setter("num_return_sequences")
    lora_name = _setter("lora_name")
    mm_info = _setter("mm_info")
    response_format = _setter("response_format")
    uuid = _setter("uuid")

    def build(self) -> dict[str, Any]:
        """A copy of the parameters, with a fresh seed unless one was set."""
        return {"seed": random.randint(1, as_rand_max_int), **self.dict_store}
