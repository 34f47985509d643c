"""One conversation of `headrace chat`: its commands, its messages and what is shown of replies."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.media import media_part
from headrace.cli.options import SAMPLING_FIELDS
from headrace.cli.terminal.wrapping import Wrapper
from headrace.cli.usage import UsageError
from headrace.options.generation_defaults import for_chat
from headrace.options.sampling_params import is_default

if TYPE_CHECKING:
    from headrace import LLM, LoRARequest, RequestOutput, SamplingParams

HELP = f"""\
/help                 this text
/reset                forget the conversation
/system [TEXT]        set the system message (and forget the conversation); without TEXT remove it
/set                  show the sampling parameters
/set NAME VALUE       set a sampling parameter: {", ".join(SAMPLING_FIELDS)}
                      VALUE "default" goes back to the model's own
/image FILE           show the model an image with the next message; also an address
/video FILE           the same with a clip
/save [FILE]          write the conversation to a new file, as JSON
/bye, /exit, /quit    leave (or Ctrl-D)
Alt-Enter, or a backslash at the end of a line, goes on in a new line; \"\"\" begins and ends a
message of several lines; pasted text may have several. Tab completes commands.
Ctrl-C stops a reply. Anything else is sent to the model."""
COMMANDS = (
    *("/bye", "/exit", "/help", "/image", "/quit", "/reset", "/save", "/set", "/system", "/video"),
)
_COMMAND = re.compile(r"/[a-z]*")


@dataclass
class Session:
    """One conversation and its settings.

    interactive: a person reads it, so errors are notes and replies are followed by their speed.
    shown: images and clips for the next message, as content parts.
    """

    llm: LLM
    params: SamplingParams
    system: str | None = None
    lora: LoRARequest | None = None
    interactive: bool = True
    shown: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    failed: bool = False

    def handle(self, text: str) -> None:
        """One input: a command, or a message to the model."""
        command, _, rest = text.strip().partition(" ")
        if not command:
            return
        if not _COMMAND.fullmatch(command):
            self._say(text)
        elif command == "/help":
            print(HELP)
        elif command == "/reset":
            self.history.clear()
            self.shown.clear()
        elif command == "/system":
            self.system = rest.strip() or None
            self.history.clear()
        elif command == "/set":
            self._set(rest.split())
        elif command in ("/image", "/video"):
            self._show(command[1:], rest.strip())
        elif command == "/save":
            self._save(rest.strip())
        elif command in ("/bye", "/exit", "/quit"):
            self.done = True
        else:
            self._note(f"unknown command {command}; /help lists the commands")

    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the model reads it."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, *self.history]

    def sampling(self) -> SamplingParams:
        """What the next reply is sampled with."""
        return for_chat(self.params, self.llm.chat_sampling)

    def _set(self, words: list[str]) -> None:
        if not words:
            self._show_values()
            return
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

    def _show_values(self) -> None:
        params = self.sampling()
        for name in SAMPLING_FIELDS:
            value = getattr(params, name)
            print(f"{name:<20}{'default' if is_default(value) else value}")

    def _show(self, kind: str, name: str) -> None:
        if not name:
            self._note(f"usage: /{kind} FILE")
        elif not self.llm.model_info.vision:
            self._note("this model reads text only: it has no vision tower")
        else:
            try:
                self.shown.append(media_part(kind, name))
            except UsageError as error:
                self._note(str(error))

    def _save(self, name: str) -> None:
        file = Path(name or time.strftime("headrace-chat-%Y%m%d-%H%M%S.json")).expanduser()
        text = json.dumps({"messages": self.messages()}, ensure_ascii=False, indent=2, default=str)
        try:
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text + "\n")
        except FileExistsError:
            self._note(f"{file} is there already; choose another name")
        except OSError as error:
            self._note(f"{file} can't be written: {error.strerror}")
        else:
            print(f"{len(self.history)} messages written to {file}")

    def _say(self, text: str) -> None:
        parts, self.shown = self.shown, []
        content = [*parts, {"type": "text", "text": text}] if parts else text
        self.history.append({"role": "user", "content": content})
        reply, last = self._reply()
        if last is None or last.error_code == 200:
            self.history.append({"role": "assistant", "content": reply})
        else:
            self.history.pop()
            self._note(str(last.error_msg))
        if last is not None:
            self._tell_of_context(last)

    def _reply(self) -> tuple[str, RequestOutput | None]:
        """Streams the reply to stdout; its text and, unless it was stopped, its last increment."""
        parts: list[str] = []
        last: RequestOutput | None = None
        wrapper = Wrapper(sys.stdout.write) if self.interactive else None
        show = sys.stdout.write if wrapper is None else wrapper.feed
        params = self.sampling()
        stream = self.llm.chat(self.messages(), params, stream=True, lora_request=self.lora)
        try:
            for (output,) in stream:
                if output is not None:
                    last = output
                    parts.append(output.outputs.text)
                    show(parts[-1])
                    sys.stdout.flush()
        except KeyboardInterrupt:
            last = None
            show(" [stopped]")
        finally:
            stream.close()
            if wrapper is not None:
                wrapper.flush()
        failed = last is not None and last.error_code != 200
        if parts != [""] or not failed:
            sys.stdout.write("\n")
        if self.interactive and last is not None and not failed:
            print(_speed(last))
        return "".join(parts), last

    def _tell_of_context(self, last: RequestOutput) -> None:
        """What to do if the conversation fills the context."""
        limit = self.llm.model_info.max_model_len
        length = last.prompt_token_ids_len + _generated(last)
        if last.finished and length >= limit - 1 and self.history:
            self._note(f"the context of {limit} tokens is full; /reset forgets the conversation")

    def _note(self, text: str) -> None:
        self.failed = True
        prefix = "" if self.interactive else "headrace: error: "
        print(f"{prefix}{text}", file=sys.stderr)


def _generated(last: RequestOutput) -> int:
    return last.outputs.send_idx + len(last.outputs.token_ids)


def _speed(last: RequestOutput) -> str:
    """Tokens per second after the first token, which the prompt's length decides on."""
    count = _generated(last)
    first = last.metrics.first_token_time
    whole = last.metrics.model_forward_time
    text = f"[{count} {'token' if count == 1 else 'tokens'}"
    if first is not None and whole is not None:
        if count > 1 and whole > first:
            text += f", {(count - 1) / (whole - first):,.1f} tokens/s"
        text += f", the first after {first:.2f} s"
    return text + "]"
