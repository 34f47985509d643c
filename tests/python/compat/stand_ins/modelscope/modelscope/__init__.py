"""Every model is the one that comes with Headrace."""

from typing import Any

from headrace import shipped_model


def snapshot_download(*_: Any, **__: Any) -> str:
    return shipped_model()
