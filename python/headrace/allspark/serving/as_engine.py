"""AsEngine: models, adapters and requests, by status codes."""

from __future__ import annotations

from headrace.allspark.enums import GenerateRequestStatus
from headrace.allspark.serving.request_calls import RequestCalls
from headrace.allspark.serving.results import ResultQueue


class AsEngine(RequestCalls):
    """Models by name, each with its requests. Any thread may call any method.

    A call that fails returns a status other than ALLSPARK_SUCCESS, and the logger "headrace" says
    why; install_model, which returns nothing, raises AsException (a RuntimeError). An engine gives
    everything back when it is collected, and at exit at the latest.
    """

    def get_no_wait(self, model_name: str, result_queue: ResultQueue) -> list[int]:
        """Deprecated: `result_queue.GetNoWait().ids_from_generate`."""
        return result_queue.GetNoWait().ids_from_generate

    def get_wait(self, model_name: str, result_queue: ResultQueue) -> list[int]:
        """Deprecated: `result_queue.Get().ids_from_generate`."""
        return result_queue.Get().ids_from_generate

    def get_request_status(
        self, model_name: str, result_queue: ResultQueue
    ) -> GenerateRequestStatus:
        """Deprecated: `result_queue.GenerateStatus()`."""
        return result_queue.GenerateStatus()
