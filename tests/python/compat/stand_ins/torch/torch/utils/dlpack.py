from typing import Any


def to_dlpack(tensor: Any) -> Any:
    return tensor.__dlpack__()
