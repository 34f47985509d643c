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
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)

_scores: list[np.ndarray] | None = None  # of each choice, while `watched_routers` is open


def _lowest_ids_first(
    scores: torch.Tensor, k: int, dim: int = -1, **_: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """torch.topk with its ties decided: the lower id wins. Nothing but routers calls it here."""
    if _scores is not None and scores.dim() == 2:
        # Experts of a group that is left out come behind all others.
        _scores.append(scores.double().masked_fill(scores.isinf(), -1.0).numpy())
    order = torch.sort(scores, dim=dim, descending=True, stable=True)
    return order.values.narrow(dim, 0, k), order.indices.narrow(dim, 0, k)


torch.topk = torch.Tensor.topk = _lowest_ids_first


@contextlib.contextmanager
def watched_routers(groups: list[np.ndarray] | None = None) -> Iterator[list[np.ndarray]]:
    """Gathers the selection scores [tokens, experts] of every router call inside, in order; those
    of groups of experts, of which there are fewer, in `groups`."""
    global _scores
    _scores = gathered = []
    try:
        yield gathered
    finally:
        _scores = None
        experts = max((rows.shape[1] for rows in gathered), default=0)
        if groups is not None:
            groups += [rows for rows in gathered if rows.shape[1] < experts]
        gathered[:] = [rows for rows in gathered if rows.shape[1] == experts]


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Logits of one sequence, float64 copies of whatever the model computed."""

    prompt: np.ndarray  # [prompt length, vocabulary]
    steps: np.ndarray  # [new tokens, vocabulary]; row s chooses generated token s


def load(folder: Path, dtype: torch.dtype, variant: str = "sdpa") -> torch.nn.Module:
    """`variant` "sdpa" is what transformers does by default, "eager" sums in other orders. Models
    with caps on scores have eager attention alone."""
    if not _has_sdpa(folder):
        variant = "eager"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=variant)
    if variant == "eager":
        use_eager_experts(model)
    return model.eval()


def _has_sdpa(folder: Path) -> bool:
    config = AutoConfig.from_pretrained(folder)
    return bool(AutoModelForCausalLM._model_mapping[type(config)]._supports_sdpa)


def use_eager_experts(model: torch.nn.Module) -> None:
    """One expert after the other instead of one grouped product (no effect on dense models)."""
    model.config._experts_implementation = "eager"


def in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """A copy that, inside `float64_everywhere`, has no float32 operation left, rope included."""
    wide = copy.deepcopy(model).double()
    with float64_everywhere():
        if (rope := rope_of(wide)) is not None:
            setattr(wide.model, rope_name(wide), type(rope)(wide.config))
        for module in wide.modules():
            if hasattr(module, "scalar_embed_scale"):
                module.embed_scale = torch.tensor(module.scalar_embed_scale)
    use_eager_experts(wide)
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


def rope_name(model: torch.nn.Module) -> str:
    return "rotary_emb" if hasattr(model.model, "rotary_emb") else "pos_emb"


def rope_of(model: torch.nn.Module) -> torch.nn.Module | None:
    return getattr(model.model, rope_name(model), None)


def reset_rope(model: torch.nn.Module) -> None:
    """Undoes what a longer sequence left behind in a dynamic rope module."""
    rope = rope_of(model)
    if rope is None or not hasattr(rope, "original_inv_freq"):
        return  # several tables, of which none changes
    rope.inv_freq = rope.original_inv_freq.clone()
    rope.max_seq_len_cached = rope.original_max_seq_len


@torch.no_grad()
def greedy(model: torch.nn.Module, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:
    """`generate` on a fresh model, never stopping early: the tokens and their logits."""
    reset_rope(model)
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
    """The prompt in one call, then the given tokens one by one through the cache; where layers keep
    states, the prompt one by one, too: what transformers does with many at once is less exact."""
    reset_rope(model)
    past, rows = None, []
    calls = [[token] for token in prompt] if keeps_states(model) else [prompt]
    for call in [*calls, *([token] for token in tokens[:-1])]:
        result = model(torch.tensor([call]), past_key_values=past, use_cache=True)
        past = result.past_key_values
        rows.append(result.logits[0].double())
    logits = torch.cat(rows).numpy()
    return Run(logits[: len(prompt)], logits[len(prompt) - 1 :])


def keeps_states(model: torch.nn.Module) -> bool:
    kinds = getattr(model.config, "layer_types", None) or []
    return bool({"linear_attention", "mamba", "hybrid"} & set(kinds))
