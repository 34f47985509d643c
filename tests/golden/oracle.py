"""Runs transformers: float32 for the answers, float64 and bfloat16 to know their errors."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Logits of one sequence, float64 copies of whatever the model computed."""

    prompt: np.ndarray  # [prompt length, vocabulary]
    steps: np.ndarray  # [new tokens, vocabulary]; row s chooses generated token s


def load(folder: Path, dtype: torch.dtype, attention: str = "sdpa") -> torch.nn.Module:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    return model.eval()


def in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """A copy that, inside `float64_everywhere`, has no float32 operation left, rope included."""
    wide = copy.deepcopy(model).double()
    with float64_everywhere():
        rope = type(wide.model.rotary_emb)
        wide.model.rotary_emb = rope(wide.config)
    return wide


class _Float64(TorchFunctionMode):
    """Turns each request for float32 (in norms, rope, softmax) into one for float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        args = [torch.float64 if arg is torch.float32 else arg for arg in args]
        kwargs = {
            key: torch.float64 if arg is torch.float32 else arg
            for key, arg in (kwargs or {}).items()
        }
        return func(*args, **kwargs)


@contextlib.contextmanager
def float64_everywhere() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def forget_dynamic_rope(model: torch.nn.Module) -> None:
    """Undoes what a longer sequence left behind in a dynamic rope module."""
    rope = model.model.rotary_emb
    rope.inv_freq = rope.original_inv_freq.clone()
    rope.max_seq_len_cached = rope.original_max_seq_len


@torch.no_grad()
def greedy(model: torch.nn.Module, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:
    """`generate` on a fresh model, never stopping early: the tokens and their logits."""
    forget_dynamic_rope(model)
    options = copy.deepcopy(model.generation_config)
    options.update(
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        eos_token_id=None,
        pad_token_id=0,
        max_new_tokens=count,
        output_logits=True,
        return_dict_in_generate=True,
    )
    ids = torch.tensor([prompt])
    result = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=options)
    logits = torch.cat(list(result.logits)).double().numpy()
    return result.sequences[0, len(prompt) :].tolist(), logits


@torch.no_grad()
def cached_run(model: torch.nn.Module, prompt: list[int], tokens: list[int]) -> Run:
    """The prompt in one call, then the given tokens one by one through the cache."""
    forget_dynamic_rope(model)
    result = model(torch.tensor([prompt]), use_cache=True)
    prompt_logits = result.logits[0].double()
    steps = [prompt_logits[-1]]
    for token in tokens[:-1]:
        result = model(
            torch.tensor([[token]]), past_key_values=result.past_key_values, use_cache=True
        )
        steps.append(result.logits[0, -1].double())
    return Run(prompt_logits.numpy(), torch.stack(steps).numpy())
