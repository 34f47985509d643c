"""vLLM's module path of what its examples print by."""

from __future__ import annotations

from collections.abc import Sequence


def print_embeddings(embeds: Sequence[float], prefix: str = "Embeddings") -> None:
    """The first sixteen numbers, and how many there are."""
    shown = ", ".join(f"{value:.4g}" for value in embeds[:16])
    more = ", ..." if len(embeds) > 16 else ""
    print(f"{prefix}: [{shown}{more}] (size={len(embeds)})")
