"""Random weights whose greedy decoding wanders instead of repeating one token."""

from __future__ import annotations

import numpy as np
import torch

# Residual inputs are small beside what the layers add, so that a model with a tied head does not
# simply echo its input, and so that a wrong rms_norm_eps shows in the logits.
EMBEDDING_STD = 0.06
LINEAR_GAIN = 2.0  # std = gain / sqrt(inputs): 0.25 at hidden 64
QUERY_KEY_GAIN = 1.6  # scores of std ~2.5: attention picks out tokens, so positions matter
HEAD_GAIN = 3.0
BIAS_STD = 0.3


def fill(model: torch.nn.Module, seed: int, storage: torch.dtype) -> None:
    """Sets every parameter to seeded random values that `storage` represents exactly.

    numpy draws the numbers: its generators give the same stream on every machine.
    """
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = _draw(generator, name, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values).to(storage).to(parameter.dtype))


def _draw(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if "norm" in name:
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    if name.endswith("bias"):
        std = BIAS_STD
    elif "embed_tokens" in name:
        std = EMBEDDING_STD
    elif "lm_head" in name:
        std = HEAD_GAIN / shape[1] ** 0.5
    elif "q_proj" in name or "k_proj" in name:
        std = QUERY_KEY_GAIN / shape[1] ** 0.5
    else:
        std = LINEAR_GAIN / shape[1] ** 0.5
    return (generator.standard_normal(shape) * std).astype(np.float32)
