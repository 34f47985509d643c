"""What all requests of a server share."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.server.admission import Admission, BodyBudget, HeavyWork
from headrace.server.auth import KeyGuard
from headrace.server.batches.files import FileStore
from headrace.server.batches.runner import BatchRunner
from headrace.server.config import ServerConfig
from headrace.server.metrics import Metrics
from headrace.server.models import ModelRegistry


@dataclass(frozen=True, slots=True)
class ServerState:
    """admission: places in the engine. text: places of those that need the tokenizer alone.
    uploads: places of files that come. heavy: for large bodies and answers.
    files, batches: None where the server has no folder for them."""

    config: ServerConfig
    models: ModelRegistry
    admission: Admission
    text: Admission
    uploads: Admission
    heavy: HeavyWork
    bodies: BodyBudget
    guard: KeyGuard
    metrics: Metrics
    files: FileStore | None = None
    batches: BatchRunner | None = None
