"""Prints the packages of one optional-dependencies group of pyproject.toml, for `pip install`."""

import re
import sys
from pathlib import Path


def group(name: str) -> list[str]:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    match = re.search(rf"^{re.escape(name)} = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise SystemExit(f"pyproject.toml has no group '{name}'")
    return re.findall(r'"([^"]+)"', match.group(1))


if __name__ == "__main__":
    print("\n".join(group(sys.argv[1])))
