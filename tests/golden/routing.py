"""What routers decided, read from the scores by which they select experts; numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np


def experts_per_token(config: dict[str, Any]) -> int:
    for key in ("moe_k", "top_k_experts"):
        if config.get(key):
            return int(config[key])
    return int(config["num_experts_per_tok"])


def margin(scores: list[np.ndarray], k: int) -> float:
    """By how much the nearest choice of all rows would have to move to become another.

    Equal scores at the k-th place are no near miss, their lower id wins: then what counts is the
    distance of the equal ones to the next higher and the next lower score.
    """
    smallest = np.inf
    for rows in scores:
        for row in rows:
            ordered = np.sort(row)[::-1]
            last = ordered[k - 1]
            below = ordered[ordered < last].max(initial=-np.inf)
            smallest = min(smallest, last - below)
            if tied(row, k):
                smallest = min(smallest, ordered[ordered > last].min(initial=np.inf) - last)
    return float(smallest)


def tied(row: np.ndarray, k: int) -> bool:
    """Whether only the ids decide which experts are taken."""
    last = np.sort(row)[::-1][k - 1]
    return bool((row >= last).sum() > k)


def chosen(rows: np.ndarray, k: int) -> np.ndarray:
    """[tokens, k] ids of the best scores, of equal ones the lowest ids."""
    return np.argsort(-rows, axis=-1, kind="stable")[:, :k]


def summary(scores: list[np.ndarray], k: int, layers: int) -> dict[str, Any]:
    """Of calls that come layer after layer: how often each expert is taken, and how many ties."""
    hits = [np.zeros(scores[layer].shape[1], int) for layer in range(layers)]
    for call, rows in enumerate(scores):
        np.add.at(hits[call % layers], chosen(rows, k), 1)
    return {
        "hits": [counts.tolist() for counts in hits],
        "ties": sum(tied(row, k) for rows in scores for row in rows),
    }
