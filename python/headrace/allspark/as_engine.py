"""AsEngine: models, adapters and requests, by status codes."""

from __future__ import annotations

from headrace.allspark.enums import GenerateRequestStatus
from headrace.allspark.request_calls import RequestCalls
from headrace.allspark.results import ResultQueue


class AsEngine(RequestCalls):
    """Models by name, each with its requests. Any thread may call any method.

    A call that fails returns a status other than ALLSPARK_SUCCESS, and the logger "headrace" says
    why; install_model, which returns nothing, raises AsException (a RuntimeError). An engine gives
    everything back when it is collected, and at exit at the latest.
    """

    def get_no_wait(self, model_name: str, queue: ResultQueue) -> list[int]:
        """Deprecated: `queue.GetNoWait().ids_from_generate`."""
        return queue.GetNoWait().ids_from_generate

    def get_wait(self, model_name: str, queue: ResultQueue) -> list[int]:
        """Deprecated: `queue.Get().ids_from_generate`."""
        return queue.Get().ids_from_generate

    def get_request_status(self, model_name: str, queue: ResultQueue) -> GenerateRequestStatus:
        """Deprecated: `queue.GenerateStatus()`."""
        return queue.GenerateStatus()
