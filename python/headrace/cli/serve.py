"""headrace serve: OpenAI's and Anthropic's APIs over HTTP, and a chat page."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.options import adapter_rank, add_engine_options, engine_arguments, model_path
from headrace.cli.usage import UsageError

if TYPE_CHECKING:
    from headrace.server import ServerConfig
    from headrace.server.run import Listener

_MAX_KEY_FILE = 1 << 20


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve models over HTTP",
        description="Serves models with OpenAI's and Anthropic's APIs, and a chat page at /.",
    )
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="folder or hub id, or NAME=FOLDER; several are served side by side; "
        "default: the shipped model",
    )
    _add_listener_options(parser)
    _add_key_options(parser)
    _add_limit_options(parser)
    _add_model_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def _add_listener_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    group.add_argument("--port", type=int, default=8000, help="default: 8000; 0: any free one")
    group.add_argument("--ssl-keyfile", metavar="FILE", help="serve HTTPS with this key")
    group.add_argument("--ssl-certfile", metavar="FILE", help="and this certificate")
    group.add_argument("--root-path", default="", help="the path a proxy serves this under")
    group.add_argument(
        "--allowed-origins",
        nargs="+",
        default=[],
        metavar="ORIGIN",
        help="web pages of these origins may call the API; *: of all",
    )
    group.add_argument(
        "--allowed-hosts",
        nargs="+",
        metavar="NAME",
        help="names in the Host header to serve; *: any; default: this machine's own names with a "
        "--host that only it reaches, else any",
    )
    group.add_argument(
        "--files-dir", metavar="FOLDER", help="allow /v1/files and /v1/batches, and keep them there"
    )
    group.add_argument("--no-chat-page", action="store_true", help="serve the API only")
    group.add_argument("--disable-access-log", action="store_true", help="no line for each request")
    group.add_argument(
        "--enable-log-requests",
        action="store_true",
        help="write prompts and parameters to the log",
    )
    group.add_argument(
        "--max-log-len", type=int, default=2000, metavar="N", help="characters of a prompt there"
    )


def _add_key_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "keys (better in a file: command lines can be seen by others)"
    )
    for name, what in (
        ("api", "clients must send one of these keys"),
        ("admin", "who sends one of these may load and unload, too"),
    ):
        group.add_argument(
            f"--{name}-key",
            nargs="+",
            default=[],
            metavar="KEY",
            help=f"{what}; also HEADRACE_{name.upper()}_KEY",
        )
        group.add_argument(f"--{name}-key-file", metavar="FILE", help="one key on each line")


def _add_limit_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    for flag, kind, default, text in (
        ("--max-body-bytes", int, 16 << 20, "of a request"),
        ("--max-total-body-bytes", int, 256 << 20, "of all requests that run or wait"),
        ("--max-body-values", int, 1 << 20, "numbers, texts, objects and arrays of a body"),
        ("--max-messages", int, 4096, "of a conversation"),
        ("--max-outputs", int, 128, "of a request (n)"),
        ("--max-concurrency", int, 256, "requests in the engine at once"),
        ("--max-text-concurrency", int, 8, "requests at once that need the tokenizer alone"),
        ("--max-queue", int, 1024, "requests that wait; one more gets 429"),
        ("--max-file-bytes", int, 512 << 20, "of a file in --files-dir"),
        ("--max-uploads", int, 4, "files that come at once; more wait"),
        ("--upload-timeout", float, 600, "seconds for a file to come"),
        ("--batch-window", int, 32, "requests of a batch in the engine at once"),
        ("--header-timeout", float, 30, "seconds for a request's headers to come"),
        ("--body-timeout", float, 60, "seconds for a request's body to come"),
        ("--send-timeout", float, 60, "seconds for a client to take a piece of a stream"),
        ("--stuck-timeout", float, 300, "seconds without a step after which /health fails"),
        ("--shutdown-timeout", int, 60, "seconds for requests to end after SIGTERM"),
    ):
        group.add_argument(
            flag, type=kind, default=default, metavar="N", help=f"{text}; default: {default}"
        )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    group.add_argument(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="what requests call the model; answers carry the first",
    )
    group.add_argument(
        "--lora-modules",
        nargs="+",
        default=[],
        metavar="NAME=FOLDER",
        help="PEFT adapters of the first model, served under names of their own",
    )
    group.add_argument(
        "--enable-lora", action="store_true", help="adapters may be loaded by an admin later"
    )
    group.add_argument("--max-loras", type=int, help="adapters in the engine at once")
    group.add_argument("--max-lora-rank", type=int, help="default: the largest of --lora-modules")
    group.add_argument(
        "--reasoning-parser", metavar="NAME", help="what tells thoughts from answers, or auto"
    )
    group.add_argument(
        "--tool-call-parser", metavar="NAME", help="what finds calls of tools, or auto"
    )
    group.add_argument(
        "--tool-parser-plugin", metavar="FILE", help="Python code that registers parsers"
    )
    group.add_argument(
        "--guided-decoding-disable-any-whitespace",
        action="store_true",
        help="guided JSON has no whitespace between its parts",
    )
    group.add_argument(
        "--guided-decoding-backend",
        default="auto",
        metavar="NAME",
        help="off: nothing is guided, calls of tools are left to the model",
    )
    group.add_argument("--max-logprobs", type=int, default=20, help="default: 20")
    group.add_argument(
        "--trust-request-chat-template",
        action="store_true",
        help="requests may bring a chat template",
    )


def run(args: argparse.Namespace) -> int:
    try:
        import python_multipart  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
        from prometheus_client import Counter  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f'{error.name} is not installed: pip install "headrace[server]"'
        ) from error
    from headrace import AsyncLLM
    from headrace.server import ModelRegistry
    from headrace.server.run import run_server

    _log_information()
    models = _models(args)
    adapters = _pairs("--lora-modules", args.lora_modules)
    options = {**engine_arguments(args), **_adapter_options(args, adapters)}
    for name in ("reasoning_parser", "tool_call_parser", "tool_parser_plugin"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    options["guided_decoding_backend"] = args.guided_decoding_backend
    if args.guided_decoding_disable_any_whitespace:
        options["guided_decoding_disable_any_whitespace"] = True
    options |= {"enable_logprob": True, "max_logprobs": args.max_logprobs}
    registry = ModelRegistry(AsyncLLM.load)

    async def load() -> None:
        for place, (names, path) in enumerate(models):
            own = adapters if place == 0 else {}
            await registry.load(path, names, own, **options)

    try:
        run_server(_listener(args), _config(args), registry, load)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise UsageError(f"cannot listen on {args.host}:{args.port}: {error.strerror}") from error
    return 0


def _log_information() -> None:
    """A server says what it does, unless HEADRACE_LOG_LEVEL says otherwise."""
    if not os.environ.get("HEADRACE_LOG_LEVEL"):
        logging.getLogger("headrace.server").setLevel(logging.INFO)


def _models(args: argparse.Namespace) -> list[tuple[list[str] | None, str]]:
    """The names and the path of each model."""
    if not args.models:
        args.model = None
        return [(args.served_model_name or ["headrace-tiny"], model_path(args))]
    if len(args.models) == 1 and args.served_model_name:
        return [(args.served_model_name, args.models[0])]
    if args.served_model_name:
        raise UsageError("--served-model-name is for one model: name several as NAME=FOLDER")
    found: list[tuple[list[str] | None, str]] = []
    for text in args.models:
        name, equals, path = text.partition("=")
        named = equals and not Path(text).exists()
        found.append(([name], path) if named else (None, text))
    return found


def _pairs(flag: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not (name and equals and Path(folder).expanduser().is_dir()):
            raise UsageError(f"{flag} takes NAME=FOLDER with a folder that is there, got {text}")
        pairs[name] = str(Path(folder).expanduser())
    return pairs


def _adapter_options(args: argparse.Namespace, adapters: dict[str, str]) -> dict[str, Any]:
    if not adapters and not args.enable_lora:
        return {}
    ranks = [adapter_rank(Path(folder)) or 0 for folder in adapters.values()]
    rank = args.max_lora_rank or max(ranks, default=0) or None
    options = {
        "enable_lora": True,
        "max_loras": args.max_loras or max(len(adapters), 1),
        "max_lora_rank": rank,
    }
    return {name: value for name, value in options.items() if value is not None}


def _listener(args: argparse.Namespace) -> Listener:
    from headrace.server.run import Listener

    if bool(args.ssl_keyfile) != bool(args.ssl_certfile):
        raise UsageError("--ssl-keyfile and --ssl-certfile go together")
    for name in (args.ssl_keyfile, args.ssl_certfile):
        if name and not Path(name).is_file():
            raise UsageError(f"there is no file {name}")
    try:
        return Listener(
            args.host,
            args.port,
            args.ssl_keyfile,
            args.ssl_certfile,
            args.root_path,
            args.shutdown_timeout,
            args.header_timeout,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _config(args: argparse.Namespace) -> ServerConfig:
    from headrace.server import ServerConfig
    from headrace.server.config import LOOPBACK_NAMES

    hosts = args.allowed_hosts
    if hosts is None and _is_loopback(args.host):
        hosts = [*LOOPBACK_NAMES, args.host]
    try:
        return ServerConfig(
            api_keys=_keys(args.api_key, args.api_key_file, "HEADRACE_API_KEY"),
            admin_keys=_keys(args.admin_key, args.admin_key_file, "HEADRACE_ADMIN_KEY"),
            max_body_bytes=args.max_body_bytes,
            max_total_body_bytes=args.max_total_body_bytes,
            body_seconds=args.body_timeout,
            max_body_values=args.max_body_values,
            max_messages=args.max_messages,
            max_outputs=args.max_outputs,
            max_concurrency=args.max_concurrency,
            max_text_concurrency=args.max_text_concurrency,
            max_queue=args.max_queue,
            send_seconds=args.send_timeout,
            stuck_seconds=args.stuck_timeout,
            allowed_origins=tuple(args.allowed_origins),
            allowed_hosts=None if hosts is None or "*" in hosts else tuple(hosts),
            access_log=not args.disable_access_log,
            trust_request_chat_template=args.trust_request_chat_template,
            log_requests=args.enable_log_requests,
            max_log_len=args.max_log_len,
            chat_page=not args.no_chat_page,
            files_dir=args.files_dir,
            max_file_bytes=args.max_file_bytes,
            max_uploads=args.max_uploads,
            upload_seconds=args.upload_timeout,
            batch_window=args.batch_window,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _is_loopback(host: str) -> bool:
    """Only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _keys(given: list[str], file: str | None, variable: str) -> tuple[str, ...]:
    keys = list(given)
    if os.environ.get(variable):
        keys.append(os.environ[variable])
    if file is not None:
        try:
            with open(file, encoding="utf-8") as lines:
                text = lines.read(_MAX_KEY_FILE)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the file of keys can't be read: {error}") from error
        found = [line.strip() for line in text.splitlines() if line.strip()]
        if not found:
            raise UsageError(f"the file of keys {file} is empty")
        keys += found
    return tuple(keys)
