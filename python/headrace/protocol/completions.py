"""Bodies of /v1/completions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.protocol.beams import read_beams
from headrace.protocol.body import Body
from headrace.protocol.chat import read_common_others
from headrace.protocol.errors import ProtocolError
from headrace.protocol.sampling import (
    MOST_LOGPROBS,
    TOKEN_CHARACTERS,
    read_prompt_logprobs,
    read_sampling,
)
from headrace.protocol.stream_options import StreamOptions, read_stream_options
from headrace.quoting import quoted

_MOST_PROMPTS = 2048
_MOST_OUTPUTS = 4096  # of all prompts
_DEFAULT_TOKENS = 16  # OpenAI's


@dataclass(slots=True)
class CompletionRequest:
    """Prompts to go on from, each as it stands.

    prompts: texts, or lists of token ids.
    echo: the answers begin with their prompts.
    prompt_only: nothing is generated (max_tokens is 0), for the log-probabilities of the prompts.
    prompt_logprobs: of so many tokens, as vLLM's field asks for them.
    beams: a beam search instead of sampling.
    add_special_tokens: the tokenizer adds what it adds to a text of its own, such as BOS.
    The rest as in ChatRequest.
    """

    model: str | None
    prompts: list[str | list[int]]
    params: SamplingParams
    stream: StreamOptions
    echo: bool = False
    add_special_tokens: bool = False
    return_token_ids: bool = False
    request_id: str | None = None
    prompt_only: bool = False
    prompt_logprobs: int | None = None
    beams: BeamSearchParams | None = None
    notes: list[str] = field(default_factory=list)

    def start(self, llm: Any, lora: LoRARequest | None = None) -> list[Any]:
        """The requests of an AsyncLLM: one for each prompt. Raises TypeError, ValueError."""
        prompts = self.call_prompts()
        if self.beams is None:
            return [llm.generate(prompt, self.params, lora_request=lora) for prompt in prompts]
        return [llm.beam_search(prompt, self.beams, lora_request=lora) for prompt in prompts]

    @property
    def prompt_size(self) -> int:
        """About how many tokens its prompts have."""
        return sum(
            len(prompt) // TOKEN_CHARACTERS if isinstance(prompt, str) else len(prompt)
            for prompt in self.prompts
        )

    def call_prompts(self) -> list[Any]:
        """The prompts as LLM.generate and AsyncLLM.generate take them."""
        if not self.add_special_tokens:
            return list(self.prompts)
        return [
            {"prompt": item, "add_special_tokens": True} if isinstance(item, str) else item
            for item in self.prompts
        ]


def read_completion(value: Any) -> CompletionRequest:
    """The request that a parsed JSON body describes.

    Each field works, or is noted as one without effect, or is refused by its name: ProtocolError.
    """
    body = Body(value)
    prompt_only = body.integer("max_tokens") == 0
    if prompt_only:  # the engine generates one at least
        body = Body({**value, "max_tokens": 1})
    ids = body.take("prompt_token_ids")  # FastDeploy's
    if ids:
        prompts = read_prompts(ids, "prompt_token_ids")
        body.note("prompt", "prompt_token_ids is the prompt", "")
    else:
        prompts = read_prompts(body.required("prompt"), "prompt")
    echo = body.flag("echo") or False
    logprobs = body.integer("logprobs")
    if logprobs is not None and not 0 <= logprobs <= MOST_LOGPROBS:
        raise ProtocolError(
            f"logprobs must be from 0 to {MOST_LOGPROBS}, got {quoted(logprobs)}", "logprobs"
        )
    asked = read_prompt_logprobs(body)
    stream = read_stream_options(body)
    for name, given in (
        ("echo", echo),
        ("max_tokens: 0", prompt_only),
        ("prompt_logprobs", asked is not None),
    ):
        if given and stream.wanted:
            field_name = name.partition(":")[0]
            raise ProtocolError(f"{name} doesn't go with stream", field_name, "unsupported_value")
    more: dict[str, Any] = {"max_tokens": _DEFAULT_TOKENS}
    counts = [count for count in (asked, logprobs if echo else None) if count is not None]
    if counts:
        more["prompt_logprobs"] = max(counts)
    params = read_sampling(body, logprobs, more)
    if len(prompts) * params.n > _MOST_OUTPUTS:
        raise ProtocolError(
            f"prompt and n ask for {len(prompts) * params.n} outputs: at most {_MOST_OUTPUTS}", "n"
        )
    others = {"stream": stream.wanted, "max_tokens: 0": prompt_only}
    beams = read_beams(body, params, others, len(prompts))
    request = CompletionRequest(
        body.text("model"),
        prompts,
        params,
        stream,
        echo,
        body.flag("add_special_tokens") or False,
        body.flag("return_token_ids") or False,
        body.text("request_id"),
        prompt_only,
        asked,
        beams,
        body.notes,
    )
    body.refuse("suffix", "the engine goes on from the end of a prompt only", "")
    read_common_others(body)
    body.finish()
    return request


def read_prompts(value: Any, name: str) -> list[str | list[int]]:
    """A text, ids, or a list of either. name: the field's, for messages. Raises ProtocolError."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _wrong(value, name)
    if not value:
        raise ProtocolError(f"{name} must not be empty", name)
    if all(map(_is_id, value)):
        return [value]
    if len(value) > _MOST_PROMPTS:
        raise ProtocolError(
            f"{name} may have at most {_MOST_PROMPTS} entries, got {len(value)}", name
        )
    for item in value:
        if not isinstance(item, str) and not (
            isinstance(item, list) and item and all(map(_is_id, item))
        ):
            raise _wrong(item, name)
    return value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(value: Any, name: str) -> ProtocolError:
    return ProtocolError(
        f"{name} must be a string, token ids, or an array of either, got {quoted(value)}",
        name,
        "invalid_type",
    )
