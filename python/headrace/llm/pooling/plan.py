"""From inputs to requests that the engine can pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from pathlib import Path
from typing import Any

from headrace import native
from headrace.errors import EngineError, UnsupportedError
from headrace.options.embedding import (
    EmbeddingFiles,
    classifier_activation,
    read_embedding_files,
)
from headrace.prompts import ChatOptions, prompt_list, read_prompt
from headrace.quoting import checked_text, quoted
from headrace.text.tokenizer import Tokenizer

# The template of Qwen3-Reranker. Its first and last part are tokenized by themselves.
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_RERANKER_BEGIN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
_RERANKER_END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_DICT_KEYS = frozenset({"prompt", "prompt_token_ids"})


@dataclass(slots=True)
class PoolingJob:
    """One input. `read` makes it ids, and what is to be made of them; its ValueErrors fail this
    input alone."""

    original: Any
    read: Callable[[], tuple[list[int], native.PoolingParams]]


class PoolingPlanner:
    """What a model's embeddings and scores are made of."""

    def __init__(self, info: native.ModelInfo, tokenizer: Tokenizer | None) -> None:
        """Raises ValueError for files beside the model that don't fit it."""
        folder = Path(info.path)
        self.files: EmbeddingFiles = read_embedding_files(folder)
        self._activation = classifier_activation(folder)
        self._info = info
        self._tokenizer = tokenizer
        limits = [info.max_model_len, self.files.max_tokens]
        self._max_tokens = min(limit for limit in limits if limit is not None)

    def embed_jobs(
        self,
        inputs: Any,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[PoolingJob]:
        """See LLM.embed. Raises ValueError and TypeError for what is wrong with the call."""
        params = self._params(dimensions, normalize)
        most = self._most_tokens(truncate_prompt_tokens)
        if prompt is not None and prompt_name is not None:
            raise ValueError("give either prompt_name or prompt")
        prefix = (
            self.files.prompt(prompt_name) if prompt is None else checked_text(prompt, "prompt")
        )
        is_asked = prompt is not None or prompt_name is not None
        items = [_without_keys(item) for item in prompt_list(inputs)]
        for item in items:
            if is_asked and not isinstance(item, str):
                raise ValueError("a prompt goes before texts, not before token ids")
        return [PoolingJob(item, partial(self._read, item, prefix, most, params)) for item in items]

    def is_classifier(self) -> bool:
        """Whether `score` reads a classifier's label of a pair of texts (a cross-encoder)."""
        return self._info.classifies

    def is_reranker(self) -> bool:
        """Whether `score` asks the model for "yes" or "no" instead of comparing embeddings."""
        return self._info.generates and not self.files.found

    def scores_are_logits(self) -> bool:
        """Whether a classifier's label is a score as it is, and not made a probability."""
        return self._activation == "Identity"

    def pair_jobs(
        self, pairs: Sequence[tuple[str, str]], truncate_prompt_tokens: int | None = None
    ) -> list[PoolingJob]:
        """One for each query and document, which asks a classifier for its only label's logit."""
        if self._info.head_outputs != 1:
            raise UnsupportedError(
                f"score: this classifier has {self._info.head_outputs} labels: a score needs a "
                "model with one"
            )
        if self._activation not in ("Identity", "Sigmoid"):
            raise UnsupportedError(
                f"score: config.json asks for the activation {quoted(self._activation)}: this "
                "version of Headrace has Sigmoid and Identity"
            )
        tokenizer = self._needed_tokenizer()
        most = self._most_tokens(truncate_prompt_tokens)

        def read(query: str, document: str) -> tuple[list[int], native.PoolingParams]:
            ids, second_at = tokenizer.encode_pair(
                query, document, most=most, max_tokens=self._max_tokens
            )
            params = native.PoolingParams(
                pooling=self._info.classifier_pooling,
                normalize=False,
                use_head=True,
                second_text_at=second_at if self._info.tells_pairs else 0,
            )
            return self._checked(ids), params

        return [PoolingJob(pair, partial(read, *pair)) for pair in pairs]

    def reranker_jobs(
        self,
        pairs: Sequence[tuple[str, str]],
        instruction: str | None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[PoolingJob]:
        """One for each query and document, which asks for the logits of "yes" and "no"."""
        tokenizer = self._needed_tokenizer()
        if len(tokenizer.encode("<|im_start|>")) != 1:
            raise UnsupportedError(
                "score: this model is no reranker of Qwen3's form (its tokenizer has no "
                "<|im_start|>), and has no modules.json that says how its embeddings are made"
            )
        answers = [tokenizer.encode(word) for word in ("yes", "no")]
        if any(len(ids) != 1 for ids in answers):
            raise UnsupportedError('score: "yes" and "no" are no single tokens of this model')
        params = native.PoolingParams(
            normalize=False, logit_token_ids=[token for ids in answers for token in ids]
        )
        begin, end = tokenizer.encode(_RERANKER_BEGIN), tokenizer.encode(_RERANKER_END)
        wanted = checked_text(_INSTRUCTION if instruction is None else instruction, "instruction")
        most = self._most_tokens(truncate_prompt_tokens)
        room = None if most is None else most - len(begin) - len(end)
        if room is not None and room < 1:
            raise ValueError(
                f"truncate_prompt_tokens is {most}: what is asked around query and document has "
                f"{len(begin) + len(end)} tokens already"
            )

        def read(query: str, document: str) -> tuple[list[int], native.PoolingParams]:
            text = f"<Instruct>: {wanted}\n<Query>: {query}\n<Document>: {document}"
            if room is None:
                middle = tokenizer.encode(text, max_tokens=self._max_tokens)
            else:
                middle = tokenizer.encode_beginning(text, room)
            return self._checked([*begin, *middle, *end]), params

        return [PoolingJob(pair, partial(read, *pair)) for pair in pairs]

    def prompt_for(self, *names: str) -> str | None:
        """The first of these prompts that the model has."""
        return next((name for name in names if name in self.files.prompts), None)

    def _params(self, dimensions: int | None, normalize: bool | None) -> native.PoolingParams:
        if dimensions is not None and (
            isinstance(dimensions, bool) or not hasattr(dimensions, "__index__")
        ):
            raise TypeError(f"dimensions must be an int, got {quoted(dimensions)}")
        wanted = self.files.dimensions if dimensions is None else index(dimensions)
        if wanted is not None and wanted < 1:
            raise ValueError(f"dimensions must be at least 1, got {quoted(wanted)}")
        size = self._info.head_outputs if self.files.dense else self._info.hidden_size
        if wanted is not None and wanted > size:
            raise ValueError(
                f"dimensions is {quoted(wanted)}: the model's embeddings have {size} numbers"
            )
        return native.PoolingParams(
            pooling=native.Pooling[self.files.pooling.upper()],
            dimensions=wanted or 0,
            normalize=self.files.normalize if normalize is None else normalize,
            use_head=self.files.dense,
        )

    def _most_tokens(self, truncate: int | None) -> int | None:
        """What inputs are cut to; None: they aren't. Raises ValueError and TypeError."""
        if truncate is None:
            return None
        if isinstance(truncate, bool) or not hasattr(truncate, "__index__"):
            raise TypeError(f"truncate_prompt_tokens must be an int, got {quoted(truncate)}")
        most = index(truncate)
        if most == -1:
            return self._max_tokens
        if not 1 <= most <= self._max_tokens:
            raise ValueError(
                f"truncate_prompt_tokens must be -1, or from 1 to the model's {self._max_tokens}, "
                f"got {quoted(most)}"
            )
        return most

    def _read(
        self, item: Any, prefix: str, most: int | None, params: native.PoolingParams
    ) -> tuple[list[int], native.PoolingParams]:
        if not isinstance(item, str):
            ids = read_prompt(item, self._tokenizer, ChatOptions()).token_ids[:most]
        elif most is None:
            tokenizer = self._needed_tokenizer()
            ids = tokenizer.encode(prefix + item, True, max_tokens=self._max_tokens)
        else:
            ids = self._needed_tokenizer().encode_beginning(prefix + item, most, True)
        return self._checked(ids), params

    def _checked(self, ids: list[int]) -> list[int]:
        if not ids:
            raise ValueError("the input is empty: there is no token to embed")
        if len(ids) > self._max_tokens:
            raise EngineError(
                f"the input has {len(ids)} tokens, more than the model's {self._max_tokens}: "
                "shorten it"
            )
        return ids

    def _needed_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise ValueError(
                "the model folder has no tokenizer: name one by tokenizer, or pass token ids"
            )
        return self._tokenizer


def _without_keys(item: Any) -> Any:
    """Text or ids, of a dict too. Raises ValueError for a dict that says more, and TypeError."""
    if not isinstance(item, Mapping):
        return item
    if len(item) != 1 or not item.keys() <= _DICT_KEYS:
        raise ValueError(
            "an input is a text, token ids, or a dict with 'prompt' or 'prompt_token_ids', got the "
            f"keys {quoted(', '.join(map(str, item)))}"
        )
    ((name, value),) = item.items()
    if name == "prompt_token_ids" and isinstance(value, str):
        raise TypeError(f"prompt_token_ids must be a list of token ids, got {quoted(value)}")
    return value


def pair_list(query: Any, documents: Any) -> list[tuple[str, str]]:
    """The pairs of a call: one query for all documents, or a query for each.

    Raises TypeError and ValueError.
    """
    for given in (query, documents):
        if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
            raise TypeError(f"queries and documents must be texts, got {quoted(given)}")
    texts = [documents] if isinstance(documents, str) else list(documents)
    queries = [query] * len(texts) if isinstance(query, str) else list(query)
    for text in (*queries, *texts):
        if not isinstance(text, str):
            raise TypeError(f"queries and documents must be texts, got {quoted(text)}")
    if len(queries) != len(texts):
        raise ValueError(
            f"there are {len(queries)} queries for {len(texts)} documents: pass one query, or one "
            "for each document"
        )
    return list(zip(queries, texts, strict=True))
