"""Tensors of whole numbers over numpy."""

from typing import Any

import numpy

from torch import utils as utils

int64 = numpy.int64


class Tensor:
    def __init__(self, values: Any) -> None:
        self.array = numpy.asarray(values)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def to(self, kind: Any) -> "Tensor":
        return Tensor(self.array.astype(kind))

    def cpu(self) -> "Tensor":
        return self

    def tolist(self) -> Any:
        return self.array.tolist()

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


tensor = Tensor
