"""tiktoken's and tekken's vocabularies as the `tokenizers` package can have them."""

from __future__ import annotations

from collections.abc import Mapping

import tokenizers
from tokenizers import models, pre_tokenizers


def alphabet() -> dict[int, str]:
    """The byte-level one."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {b: chr(b) for b in plain} | {b: chr(0x100 + n) for n, b in enumerate(others)}


def package(tokens: Mapping[int, bytes], pattern: str) -> tokenizers.Tokenizer:
    """tokens: by rank. The merges are all ways to cut them in two."""
    spell = alphabet()
    spelled = {token: "".join(spell[byte] for byte in token) for token in tokens.values()}
    merges = [
        (spelled[token[:cut]], spelled[token[cut:]])
        for _, token in sorted(tokens.items())
        for cut in range(1, len(token))
        if token[:cut] in spelled and token[cut:] in spelled
    ]
    vocab = {spelled[token]: rank for rank, token in tokens.items()}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return made
