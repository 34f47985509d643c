"""How much of an output each update of it has."""

from enum import Enum


class RequestOutputKind(Enum):
    """CUMULATIVE: everything so far. DELTA: what is new. FINAL_ONLY: there is one update, the
    whole output."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2
