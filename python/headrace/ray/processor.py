"""A dataset in, a dataset with answers out: shaped as ray.data.llm."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from headrace.ray.config import HeadraceConfig
from headrace.ray.rows import Postprocess, Preprocess, RowFunction
from headrace.ray.stage import EngineStage


class Processor:
    """Answers the rows of a dataset; made by build_processor."""

    def __init__(
        self,
        config: HeadraceConfig,
        preprocess: RowFunction | None,
        postprocess: RowFunction | None,
        preprocess_map_kwargs: Mapping[str, Any],
        postprocess_map_kwargs: Mapping[str, Any],
    ) -> None:
        self.config = config
        self._before = Preprocess(preprocess, config.should_continue_on_error)
        self._after = Postprocess(postprocess, config.should_continue_on_error)
        self._before_options = dict(preprocess_map_kwargs)
        self._after_options = dict(postprocess_map_kwargs)

    def __call__(self, dataset: Any) -> Any:
        """A ray.data.Dataset of the answered rows. Nothing runs until it is read."""
        config = self.config
        return (
            dataset.map(self._before, **self._before_options)
            .map_batches(
                EngineStage,
                fn_constructor_kwargs={"config": config},
                batch_size=config.batch_size,
                batch_format="pyarrow",
                zero_copy_batch=True,
                **_pool(config),
                **config.resources(),
            )
            .map(self._after, **self._after_options)
        )


def _pool(config: HeadraceConfig) -> dict[str, Any]:
    """How many actors, and calls of each at once. Ray Data starts dead ones again by itself."""
    from ray.data import ActorPoolStrategy

    least, most = config.actors
    at_once = config.max_concurrent_batches
    if "max_concurrent_calls_per_actor" in inspect.signature(ActorPoolStrategy).parameters:
        pool = ActorPoolStrategy(
            min_size=least, max_size=most, max_concurrent_calls_per_actor=at_once
        )
        return {"compute": pool}
    # Before Ray 2.60.
    pool = ActorPoolStrategy(min_size=least, max_size=most)
    return {"compute": pool, "max_concurrency": at_once}


def build_processor(
    config: HeadraceConfig,
    preprocess: RowFunction | None = None,
    postprocess: RowFunction | None = None,
    preprocess_map_kwargs: Mapping[str, Any] | None = None,
    postprocess_map_kwargs: Mapping[str, Any] | None = None,
) -> Processor:
    """What makes a dataset of answers of a dataset: `processor(ray.data.read_json(...))`.

    preprocess: gives columns to add to a row, among them one of "messages" (a conversation),
        "prompt" (a text) and "tokenized_prompt" (ids); "sampling_params" (SamplingParams' fields),
        "tools", "tool_choice" and "chat_template_kwargs" if there are any. None: rows have them.
    postprocess: gets all columns of a row and the answer's - "generated_text", "generated_tokens",
        "num_input_tokens", "num_generated_tokens", "finish_reason", "reasoning_content" ("": none),
        "tool_calls" (JSON text of a list), "time_taken_llm" in seconds - and gives the row of the
        result. None: all of them.
    preprocess_map_kwargs, postprocess_map_kwargs: Dataset.map's, for these two.

    An actor that dies is started again, and the batches that it had are answered again.
    """
    return Processor(
        config, preprocess, postprocess, preprocess_map_kwargs or {}, postprocess_map_kwargs or {}
    )
