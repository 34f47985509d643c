"""How a server is set up."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of one server. The command line's defaults are these.

    api_keys: any of them opens the API; none: no key is asked for. admin_keys: open loading and
        unloading, too; none: nobody may.
    max_body_bytes: of a request's body. body_seconds: to send it in. max_total_body_bytes: of the
        bodies of all requests that haven't ended; what goes beyond is refused with 429.
    max_body_values: of JSON in a large body: numbers, texts, objects, arrays.
    max_messages: of a conversation; it may have twice as many parts. max_outputs: `n`, for all
        prompts of a request together.
    max_concurrency: requests in the engine at once. max_text_concurrency: requests that need the
        tokenizer alone, at once. max_queue: requests that wait for a place of either kind; one more
        is refused with 429.
    stuck_seconds: a model that has requests and makes no step for so long is told as failed.
    send_seconds: how long a client may take to accept a piece of a stream.
    allowed_origins: web pages of other sites that may call the API ("*": all).
    allowed_hosts: names in the Host header that are served, in any case; None: any. The default
        keeps out other names that resolve to this machine, as pages of other sites may use them.
    trust_request_chat_template: a request may bring a chat template of its own.
    files_dir: folder of /v1/files and /v1/batches; None: they are refused. max_file_bytes: of a
        file there. max_uploads: files that come at once. upload_seconds: for one to come.
    batch_window: requests of a batch in the engine at once.
    log_requests: write prompts and parameters to the log, max_log_len characters of each.
    """

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_keys: tuple[str, ...] = field(default=(), repr=False)
    max_body_bytes: int = 16 << 20
    max_total_body_bytes: int = 256 << 20
    body_seconds: float = 60.0
    max_body_values: int = 1 << 20
    max_messages: int = 4096
    max_outputs: int = 128
    max_concurrency: int = 256
    max_text_concurrency: int = 8
    max_queue: int = 1024
    send_seconds: float = 60.0
    stuck_seconds: float = 300.0
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] | None = LOOPBACK_NAMES
    access_log: bool = True
    trust_request_chat_template: bool = False
    log_requests: bool = False
    max_log_len: int = 2000
    chat_page: bool = True
    files_dir: str | None = None
    max_file_bytes: int = 512 << 20
    max_uploads: int = 4
    upload_seconds: float = 600.0
    batch_window: int = 32

    def __post_init__(self) -> None:
        for name in (
            "max_body_bytes",
            "body_seconds",
            "max_body_values",
            "max_messages",
            "max_outputs",
            "max_concurrency",
            "max_text_concurrency",
            "send_seconds",
            "stuck_seconds",
            "max_file_bytes",
            "max_uploads",
            "upload_seconds",
            "batch_window",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.max_total_body_bytes < self.max_body_bytes:
            raise ValueError(
                f"max_total_body_bytes must be at least max_body_bytes, {self.max_body_bytes}, "
                f"got {self.max_total_body_bytes}"
            )
        for name in ("max_queue", "max_log_len"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not all(re.fullmatch(r"[!-~]+", key) for key in (*self.api_keys, *self.admin_keys)):
            raise ValueError(
                "an API key or admin key is empty, or has a space or a character beyond ASCII, "
                "which no header brings as it is: take visible ASCII characters"
            )
