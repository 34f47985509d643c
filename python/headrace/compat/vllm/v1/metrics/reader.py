"""vLLM's module path of what LLM.get_metrics returns."""

from headrace.llm.metrics import Counter, Gauge, Histogram, Metric, Vector

__all__ = ["Counter", "Gauge", "Histogram", "Metric", "Vector"]
