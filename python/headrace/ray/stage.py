"""What the actors of a dataset's processor run."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

from headrace.batch.local_engine import all_of
from headrace.llm.outputs import RequestOutput
from headrace.llm.pooling.outputs import EmbeddingRequestOutput
from headrace.options.guided_decoding import GuidedDecodingParams
from headrace.options.sampling_params import SamplingParams
from headrace.options.tools import tool_list
from headrace.ray.config import HeadraceConfig
from headrace.ray.engine import load_engine
from headrace.ray.rows import ANSWER, ERROR, REQUEST, read_request


class EngineStage:
    """Adds the answers to batches of rows. Ray runs several calls at once; they share the steps of
    the one engine."""

    def __init__(self, config: HeadraceConfig) -> None:
        """Raises what loading the model raises."""
        self._llm: Any = load_engine(config)
        self._embeds = config.task_type == "embed"
        self._continues = config.should_continue_on_error

    async def __call__(self, batch: Any) -> AsyncIterator[Any]:
        """`batch`: a pyarrow.Table. Raises ValueError for a row that can't be answered, unless the
        config says otherwise, and RuntimeError if the engine fails."""
        import pyarrow

        texts = batch.column(REQUEST).to_pylist()
        answers = await all_of([self._answer(text) for text in texts])
        yield batch.append_column(ANSWER, pyarrow.array(answers, pyarrow.large_string()))

    async def _answer(self, text: str) -> str:
        """JSON of an answer."""
        start = time.monotonic()
        try:
            request = read_request(text)
            answer = await (self._embed(request) if self._embeds else self._ask(request))
        except (TypeError, ValueError) as error:
            if not self._continues:
                raise ValueError(f"a row can't be answered: {error}") from error
            return json.dumps({ERROR: str(error)})
        return json.dumps({**answer, "time_taken_llm": time.monotonic() - start, ERROR: ""})

    async def _embed(self, request: dict[str, Any]) -> dict[str, Any]:
        more = sorted(request.keys() - {"prompt", "tokenized_prompt"})
        if more:
            raise ValueError(f"an embedding is of prompt or tokenized_prompt: leave out {more[0]}")
        given = request.get("prompt", request.get("tokenized_prompt"))
        (output,) = await self._llm.embed([given])
        _check(output)
        return {
            "embeddings": output.outputs.embedding,
            "num_input_tokens": len(output.prompt_token_ids),
        }

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        params = _params(request.get("sampling_params") or {})
        if "messages" in request:
            options = {
                name: request[name]
                for name in ("tools", "tool_choice", "chat_template_kwargs")
                if name in request
            }
            _check_tools(options.get("tools"))
            call = self._llm.chat(request["messages"], params, **options)
        else:
            call = self._llm.generate(
                request.get("prompt", request.get("tokenized_prompt")), params
            )
        output: RequestOutput = await call.result()
        _check(output)
        return _answer(output)


def _check(output: RequestOutput | EmbeddingRequestOutput) -> None:
    """Raises ValueError for a request that failed, RuntimeError if its engine did."""
    if output.error_code >= 500:
        raise RuntimeError(f"the engine has failed: {output.error_msg}")
    if output.error_code != 200:
        raise ValueError(output.error_msg or "the request failed")


def _check_tools(tools: Any) -> None:
    """Raises ValueError, not the RuntimeError that LLM.chat has for them."""
    try:
        tool_list(tools)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _params(given: dict[str, Any]) -> SamplingParams:
    guided = given.get("guided_decoding")
    if isinstance(guided, dict):
        given = {**given, "guided_decoding": GuidedDecodingParams(**guided)}
    return SamplingParams(**given)


def _answer(output: RequestOutput) -> dict[str, Any]:
    """Under the names of Ray's own engines, where they have one."""
    one = output.outputs
    calls = [call.to_dict() for call in one.tool_calls or ()]
    return {
        "generated_text": one.text,
        "generated_tokens": list(one.token_ids),
        "num_input_tokens": len(output.prompt_token_ids),
        "num_generated_tokens": len(one.token_ids),
        "finish_reason": one.finish_reason,
        "reasoning_content": one.reasoning_content or "",
        "tool_calls": json.dumps(calls),
    }
