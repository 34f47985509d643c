"""The options of the engine, read from the public C++ headers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

HEADERS = "cpp/include/headrace"


@dataclass(frozen=True)
class Struct:
    name: str
    header: str
    about: str  # in Python and the docs
    in_c: str = ""  # name of the C struct; none: its fields are in its owner's
    c_header: str = ""


STRUCTS = (
    Struct(
        name="PoolingParams",
        header="pooling_params.h",
        about="Embeddings",
        in_c="headrace_pooling_params",
        c_header="c_params.h",
    ),
    Struct(
        name="SamplingParams",
        header="sampling_params.h",
        about="How tokens are chosen",
        in_c="headrace_sampling_params",
        c_header="c_params.h",
    ),
    Struct(name="SpeculativeOptions", header="options.h", about="Guessing of tokens"),
    Struct(
        name="ModelOptions",
        header="options.h",
        about="How a model is loaded and run",
        in_c="headrace_model_options",
        c_header="c.h",
    ),
)
ENUMS = {
    "LogprobsKind": "sampling_params.h",
    "OutOfBlocks": "options.h",
    "Pooling": "pooling_params.h",
}

# In Python they are parameters of what loads a model. C has one function in place of both.
CPP_ONLY = {"LoadProgressSink", "std::stop_token"}


@dataclass(frozen=True)
class Field:
    type: str
    name: str
    default: str  # as in C++; "" if it is the type's own
    doc: str


DOC = r"(?:\s*///<\s*(?P<doc>.*))?"
FIELD = re.compile(
    r"(?P<type>[\w:]+(?:<[\w:<>, ]+>)?) (?P<name>[a-z]\w*)(?: = (?P<default>[^;{}]+)|\{\})?;" + DOC
)
ENUMERATOR = re.compile(r"k(?P<name>[A-Z]\w*)," + DOC)


def body(text: str, start: str) -> list[str]:
    """Lines between `start` and the brace that closes it, which stands at the line's begin."""
    begin = text.index(start) + len(start)
    return text[begin : text.index("\n};", begin)].splitlines()


def read_fields(text: str, struct: str) -> list[Field]:
    """Of a struct that has nothing else than fields, and operators."""
    fields: list[Field] = []
    before: list[str] = []
    for line in map(str.strip, body(text, f"struct {struct} {{\n")):
        if line.startswith("///<"):  # of the last field, too
            fields[-1] = replace(fields[-1], doc=f"{fields[-1].doc} {line[4:].strip()}")
        elif line.startswith("///"):
            before.append(line[3:].strip())
        elif line and not line.startswith(("//", "bool operator")):
            match = FIELD.fullmatch(line)
            if not match:
                raise ValueError(f"struct {struct}: write '{line}' as: type name = default;")
            doc = " ".join([*before, match["doc"] or ""]).strip()
            fields.append(Field(match["type"], match["name"], match["default"] or "", doc))
            before = []
    return fields


def read_enum(text: str, name: str) -> dict[str, str]:
    """Its values in their order, and what is said of them."""
    values = {}
    for line in map(str.strip, body(text, f"enum class {name} : uint8_t {{\n")):
        match = ENUMERATOR.fullmatch(line)
        if not match:
            raise ValueError(f"enum {name}: write '{line}' as: kName,")
        values[match["name"]] = match["doc"] or ""
    return values


class Table:
    """What the headers say."""

    def __init__(self, root: Path) -> None:
        def text(header: str) -> str:
            return (root / HEADERS / header).read_text()

        self.fields = {s.name: read_fields(text(s.header), s.name) for s in STRUCTS}
        self.enums = {name: read_enum(text(header), name) for name, header in ENUMS.items()}

    def in_python(self, struct: str) -> list[Field]:
        return [field for field in self.fields[struct] if field.type not in CPP_ONLY]


def upper(name: str) -> str:
    """RawLogprobs -> RAW_LOGPROBS."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
