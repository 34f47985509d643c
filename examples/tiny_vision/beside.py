"""What the tiny vision model takes from the tiny model beside it. Whoever imports this module can
import that folder's modules as well."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tiny_model"))

from dialogues import is_right, load_heldout
from exchange import STOP, Exchange
from facts import words

HERE = Path(__file__).resolve().parent

__all__ = ["HERE", "STOP", "Exchange", "is_right", "load_heldout", "words"]
