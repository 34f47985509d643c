"""The object `options` of ollama's bodies."""

from __future__ import annotations

from typing import Any

from headrace.protocol.body import Body

# Where a chat's field has another name.
OPTION_NAMES = {
    "max_tokens": "options.num_predict",
    "repetition_penalty": "options.repeat_penalty",
    **{
        name: f"options.{name}"
        for name in (
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "seed",
            "stop",
            "presence_penalty",
            "frequency_penalty",
        )
    },
}
_OF_THE_SERVER = (
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "numa",
    "low_vram",
    "f16_kv",
    "logits_all",
    "vocab_only",
    "use_mmap",
    "use_mlock",
)


def read_options(owner: Body) -> dict[str, Any]:
    """What they say of sampling, as fields of a chat; None: nothing. Raises ProtocolError."""
    given = owner.mapping("options")
    if given is None:
        return {}
    options = Body(given, "options")
    limit, seed = options.integer("num_predict"), options.integer("seed")
    form = {
        "temperature": options.number("temperature"),
        "top_k": options.integer("top_k"),
        "top_p": options.number("top_p"),
        "min_p": options.number("min_p"),
        "seed": None if seed == -1 else seed,  # a random one
        "max_tokens": limit if limit is not None and limit > 0 else None,  # else there is no limit
        "stop": options.array("stop"),
        "repetition_penalty": options.number("repeat_penalty"),
        "presence_penalty": options.number("presence_penalty"),
        "frequency_penalty": options.number("frequency_penalty"),
    }
    _read_others(options)
    options.finish()
    owner.notes.extend(options.notes)
    return form


def _read_others(options: Body) -> None:
    options.note("num_ctx", "the server's --max-model-len is the context")
    options.note("num_keep", "prompts are not cut")
    options.note("repeat_last_n", "penalties see the whole text", -1)
    for name in _OF_THE_SERVER:
        options.note(name, "it is an option of the server, not of a request")
    for name, neutral in (("typical_p", 1), ("tfs_z", 1), ("mirostat", 0)):
        options.refuse(name, "there is no such sampler; use top_p or min_p", neutral)
    for name in ("mirostat_tau", "mirostat_eta"):
        options.note(name, "there is no mirostat")
    options.note("penalize_newline", "penalties see all tokens", True)
