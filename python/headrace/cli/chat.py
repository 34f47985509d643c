"""headrace chat: talk to a model in the terminal."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.cli.options import (
    SAMPLING_FIELDS,
    add_engine_options,
    add_model_option,
    add_sampling_options,
    load_model,
    sampling_params,
)

if TYPE_CHECKING:
    from headrace import LLM, SamplingParams

HELP = f"""\
/help                 this text
/reset                forget the conversation
/system [TEXT]        set the system message (and forget the conversation); without TEXT remove it
/set NAME VALUE       set a sampling parameter: {", ".join(SAMPLING_FIELDS)}
                      VALUE "default" goes back to the model's own
/exit                 leave (or Ctrl-D)
Ctrl-C stops a reply. Anything else is sent to the model."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "chat", help="talk to a model", description="Talks to a model in the terminal."
    )
    add_model_option(parser)
    parser.add_argument("--system", help="system message")
    add_sampling_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    params = sampling_params(args)
    interactive = sys.stdin.isatty()
    with load_model(args) as llm:
        session = Session(llm, params, args.system, show_errors_as_notes=interactive)
        if interactive:
            _enable_line_editing()
            print(f"{llm.model_info.family} model ready. /help lists the commands.")
        return _loop(session, interactive)


def _loop(session: Session, interactive: bool) -> int:
    while not session.done:
        try:
            line = input("> " if interactive else "")
        except EOFError:
            if interactive:
                print()
            break
        except KeyboardInterrupt:
            print("\n(/exit or Ctrl-D leaves)")
            continue
        session.handle(line)
    return 1 if session.failed and not interactive else 0


def _enable_line_editing() -> None:
    try:
        import readline  # noqa: F401  (input() uses it once it is imported)
    except ImportError:
        return


@dataclass
class Session:
    """One conversation and its settings."""

    llm: LLM
    params: SamplingParams
    system: str | None = None
    show_errors_as_notes: bool = True
    history: list[dict[str, str]] = field(default_factory=list)
    done: bool = False
    failed: bool = False

    def handle(self, line: str) -> None:
        """One line of input: a command, or a message to the model."""
        command, _, rest = line.strip().partition(" ")
        if not command:
            return
        if not command.startswith("/"):
            self._say(line)
        elif command == "/help":
            print(HELP)
        elif command == "/reset":
            self.history.clear()
        elif command == "/system":
            self.system = rest.strip() or None
            self.history.clear()
        elif command == "/set":
            self._set(rest.split())
        elif command in ("/exit", "/quit"):
            self.done = True
        else:
            self._note(f"unknown command {command}; /help lists the commands")

    def _set(self, words: list[str]) -> None:
        if len(words) != 2 or words[0] not in SAMPLING_FIELDS:
            self._note(f"usage: /set NAME VALUE, with NAME one of {', '.join(SAMPLING_FIELDS)}")
            return
        name, text = words
        try:
            if text == "default":
                value = getattr(type(self.params)(), name)
            else:
                value = SAMPLING_FIELDS[name](text)
            self.params = replace(self.params, **{name: value})
        except (TypeError, ValueError) as error:
            self._note(str(error))

    def _say(self, text: str) -> None:
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        self.history.append({"role": "user", "content": text})
        reply, error = self._reply([*system, *self.history])
        if error is None:
            self.history.append({"role": "assistant", "content": reply})
        else:
            self.history.pop()
            self._note(error)

    def _reply(self, messages: list[dict[str, str]]) -> tuple[str, str | None]:
        """Streams the reply to stdout; its text, and the error if it failed."""
        parts: list[str] = []
        error = None
        try:
            for increment in self.llm.chat(messages, self.params, use_tqdm=False, stream=True):
                for output in increment:
                    if output is None or output.outputs is None:
                        continue
                    if output.error_code != 200:
                        error = output.error_msg
                    text = output.outputs.text or ""
                    parts.append(text)
                    sys.stdout.write(text)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.write(" [stopped]")
        sys.stdout.write("\n")
        return "".join(parts), error

    def _note(self, text: str) -> None:
        self.failed = True
        prefix = "" if self.show_errors_as_notes else "headrace: error: "
        print(f"{prefix}{text}", file=sys.stderr)
