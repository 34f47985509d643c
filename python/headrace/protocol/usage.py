"""Token counts of an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.llm.outputs import RequestOutput


def usage(outputs: Iterable[RequestOutput]) -> dict[str, Any]:
    """OpenAI's object for the whole outputs of one request.

    A prompt is read once for all of its outputs: only those of index 0 count their prompts.
    """
    prompt = cached = completion = reasoning = images = videos = 0
    for output in outputs:
        if output.outputs.index == 0:
            prompt += len(output.prompt_token_ids)
            cached += output.num_cached_tokens
            images += output.num_input_image_tokens
            videos += output.num_input_video_tokens
        completion += len(output.outputs.token_ids)
        reasoning += output.outputs.reasoning_token_num
    return usage_counts(prompt, completion, cached, reasoning, images, videos)


def usage_counts(
    prompt: int, completion: int, cached: int, reasoning: int, images: int = 0, videos: int = 0
) -> dict[str, Any]:
    """images, videos: tokens of the prompt that stand for these."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": cached,
            "image_tokens": images,
            "video_tokens": videos,
        },
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
