"""The engine of an actor."""

from __future__ import annotations

from headrace.llm.async_llm import AsyncLLM
from headrace.ray.config import HeadraceConfig
from headrace.ray.numa import bind_to_node


def load_engine(config: HeadraceConfig) -> AsyncLLM:
    """Loads the model in this process, which is the actor's.

    Raises what AsyncLLM raises, and RuntimeError if there is no NUMA node left.
    """
    arguments = config.llm_arguments()
    if config.numa:
        cpus = bind_to_node()
        arguments.setdefault("num_threads", cpus)
    return AsyncLLM(**arguments)
