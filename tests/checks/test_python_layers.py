"""Which Python modules touch the extension: LLM reaches it through the native API alone."""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "headrace"
IMPORT = re.compile(r"^\s*(from headrace\._core import|from headrace import .*\b_core\b)", re.M)
# Folders, and single modules that wrap one part of the extension each.
ALLOWED = {"native", "grammar", "allspark/core.py", "packed.py", "__init__.py"}


def test_only_the_lowest_layer_imports_the_extension() -> None:
    users = [
        path.relative_to(PACKAGE)
        for path in PACKAGE.rglob("*.py")
        if IMPORT.search(path.read_text(encoding="utf-8"))
    ]
    assert any(user.parts[0] == "native" for user in users), "the pattern finds nothing"
    wrong = [str(u) for u in users if u.parts[0] not in ALLOWED and str(u) not in ALLOWED]
    assert not wrong, wrong
