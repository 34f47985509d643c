"""`headrace serve` as a Ray Serve application."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.quoting import quoted
from headrace.ray.config import HeadraceConfig

if TYPE_CHECKING:
    from headrace.server import ServerConfig

_ENGINE = {"enable_logprob": True}  # what the API may ask for; engine_kwargs may say otherwise
# Ray's router of language models. Its public name can't be imported without another engine.
_ROUTERS = (
    "ray.serve.llm.request_router",
    "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router",
)
_ROUTER = "PrefixCacheAffinityRouter"
_ROUTER_OPTIONS = {"imbalanced_threshold": 16, "do_eviction": True}


def serve_app(
    config: HeadraceConfig,
    server: ServerConfig | None = None,
    *,
    names: str | Sequence[str] | None = None,
    target_requests: int = 32,
    prefix_aware: bool = False,
) -> Any:
    """The application for `ray.serve.run`: the API and the chat page of `headrace serve`.

    config: `concurrency` is the number of replicas; with (least, most) Ray Serve starts and ends
        them, so that each has about `target_requests` at once.
    server: as for create_app; its limits hold for each replica.
    names: what requests call the model, one or several; default: the last part of its path.
    prefix_aware: requests whose prompts begin alike go to the same replica, which has the beginning
        in its prefix cache, unless it has much more to do than others. One more deployment reads
        the requests then.

    Raises ValueError for settings of `server` that many replicas can't keep, and ImportError if
    Ray Serve, the server's packages or, for prefix_aware, Ray's router are missing.
    """
    from headrace.server import ServerConfig

    server = ServerConfig() if server is None else server
    _check(server, target_requests)
    if config.task_type != "generate":
        raise ValueError("task_type is for datasets: a service answers what it is asked")
    from ray import serve

    from headrace.ray.replica import Front, Replica

    config = dataclasses.replace(config, engine_kwargs={**_ENGINE, **config.engine_kwargs})
    options: dict[str, Any] = {
        "ray_actor_options": config.resources(),
        "max_ongoing_requests": server.max_concurrency + server.max_queue,
        **_count(config, target_requests),
    }
    if prefix_aware:
        options["request_router_config"] = _router()
    replicas = (
        serve.deployment(Replica)
        .options(**options)
        .bind(config, server, [names] if isinstance(names, str) else names)
    )
    if not prefix_aware:
        return replicas
    _, most = config.actors
    front = serve.deployment(Front).options(
        max_ongoing_requests=options["max_ongoing_requests"] * most
    )
    return front.bind(replicas, server)


def _check(server: ServerConfig, target_requests: int) -> None:
    if server.files_dir is not None:
        raise ValueError("files_dir belongs to one process: run batches by headrace batch --ray")
    if server.admin_keys:
        raise ValueError("admin_keys: replicas come and go, so nothing is loaded into one alone")
    if target_requests < 1:
        raise ValueError(f"target_requests must be at least 1, got {quoted(target_requests)}")


def _count(config: HeadraceConfig, target_requests: int) -> dict[str, Any]:
    least, most = config.actors
    if least == most:
        return {"num_replicas": most}
    return {
        "autoscaling_config": {
            "min_replicas": least,
            "max_replicas": most,
            "target_ongoing_requests": target_requests,
        }
    }


def _router() -> Any:
    """Raises ImportError."""
    try:
        from ray.serve.config import RequestRouterConfig

        path = next(path for path in _ROUTERS if _has_router(path))
    except (ImportError, StopIteration):
        raise ImportError(
            f"prefix_aware needs Ray's {_ROUTER}, which this version of Ray doesn't have"
        ) from None
    return RequestRouterConfig(
        request_router_class=f"{path}.{_ROUTER}", request_router_kwargs=_ROUTER_OPTIONS
    )


def _has_router(path: str) -> bool:
    try:
        return hasattr(importlib.import_module(path), _ROUTER)
    except ImportError:
        return False
