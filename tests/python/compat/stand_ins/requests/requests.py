"""As much of the package `requests` as FastDeploy's page uses."""

from __future__ import annotations

import urllib.request
from types import SimpleNamespace


def get(url: str) -> SimpleNamespace:
    """The body, as `content`."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return SimpleNamespace(content=answer.read())
