"""Prints packages that pyproject.toml lists, for `pip install`: requirements.py LIST...

LIST is `dependencies` or the name of an optional group."""

import re
import sys
from pathlib import Path


def group(name: str) -> list[str]:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    match = re.search(rf"^{re.escape(name)} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise SystemExit(f"pyproject.toml has no list '{name}'")
    return re.findall(r'"([^"]+)"', match.group(1))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("\n".join(group(name)))
