"""Numbers for Prometheus. Labels hold paths of routes and names of models only, never what a
client has written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.llm.metrics import COUNTERS, GAUGES

if TYPE_CHECKING:
    from headrace.server.admission import Admission
    from headrace.server.models import ModelRegistry

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)


class Metrics:
    """The numbers of one server."""

    def __init__(self, models: ModelRegistry, admission: Admission) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "headrace_http_requests", "Requests", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "headrace_http_request_seconds",
            "From a request to the end of its answer",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._first = Histogram(
            "headrace_time_to_first_token_seconds",
            "From a request to its first token",
            ["model"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter(
            "headrace_tokens", "Tokens of requests", ["model", "kind"], registry=self._registry
        )
        for name, text, read in (
            ("running", "Requests that hold a place", lambda: admission.running),
            ("queued", "Requests that wait for a place", lambda: admission.waiting),
        ):
            gauge = Gauge(f"headrace_http_{name}", text, registry=self._registry)
            gauge.set_function(read)
        self._registry.register(_EngineNumbers(models))

    def request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        self._first.labels(model).observe(seconds)

    def tokens(self, model: str, prompt: int, generated: int) -> None:
        self._tokens.labels(model, "prompt").inc(prompt)
        self._tokens.labels(model, "generated").inc(generated)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineNumbers(Collector):
    """The engines' own counters, read when Prometheus asks."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        stats = [(model.names[0], model.llm.stats()) for model in self._models.models]
        for kinds, family in ((GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)):
            for name, text, attribute in kinds:
                metric = family(f"headrace_{name}", text, labels=["model"])
                for model, values in stats:
                    metric.add_metric([model], getattr(values, attribute))
                yield metric

    def describe(self) -> Iterable[Metric]:
        return ()
