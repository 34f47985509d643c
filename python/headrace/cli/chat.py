"""headrace chat: talk to a model in the terminal."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

from headrace.cli.chat_session import Session
from headrace.cli.media import add_media_files, media_parts
from headrace.cli.options import (
    SAMPLING_FIELDS,
    add_engine_options,
    add_guiding_options,
    add_model_option,
    add_sampling_options,
    load_model,
    lora_options,
    lora_request,
    model_path,
    sampling_params,
    tell_of_toy,
)
from headrace.cli.terminal.line_input import PlainReader, Reader, terminal_reader
from headrace.options.sampling_params import is_default

# A conversation goes on; each message may have some.
_LIMITS = {"image": 256, "video": 64}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "chat", help="talk to a model", description="Talks to a model in the terminal."
    )
    add_model_option(parser)
    parser.add_argument("--system", help="system message")
    add_media_files(parser)
    add_sampling_options(parser)
    add_guiding_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    params = sampling_params(args)
    lora = lora_request(args)
    shown = media_parts(args)
    interactive = sys.stdin.isatty()
    if interactive:
        tell_of_toy(args)
        print(f"Loading {model_path(args)} ...", file=sys.stderr)
    warnings.filterwarnings("ignore", "limit_mm_per_prompt has no effect")
    with load_model(args, **lora_options(args), **_media(args, interactive)) as llm:
        session = Session(llm, params, args.system, lora=lora, interactive=interactive, shown=shown)
        if interactive:
            name = Path(model_path(args)).resolve().name
            print(f"{name}: {_sampling_text(session)}. /help lists the commands.")
        return _loop(session, terminal_reader() if interactive else PlainReader())


def _media(args: argparse.Namespace, interactive: bool) -> dict[str, Any]:
    """LLM's arguments about media. What a person types at a terminal may be fetched from any public
    host: nobody else chooses the address."""
    more: dict[str, Any] = {"limit_mm_per_prompt": _LIMITS}
    if interactive and args.allowed_media_domains is None:
        more["allowed_media_domains"] = ["*"]
    return more


def _sampling_text(session: Session) -> str:
    """How replies are sampled, as far as it isn't the model's own affair."""
    params = session.sampling()
    names = [name for name in SAMPLING_FIELDS if not is_default(getattr(params, name))]
    chosen = ", ".join(f"{name} {getattr(params, name)}" for name in names)
    return chosen or "sampled as its generation_config.json says"


def _loop(session: Session, reader: Reader) -> int:
    while not session.done:
        try:
            text = reader.read()
        except EOFError:
            if session.interactive:
                print()
            break
        except KeyboardInterrupt:
            print("\n(/exit or Ctrl-D leaves)")
            continue
        session.handle(text)
    return 1 if session.failed and not session.interactive else 0
