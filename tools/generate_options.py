"""Writes everything that repeats the options: python tools/generate_options.py

The table of options is the public C++ headers: sampling_params.h, pooling_params.h and options.h in
cpp/include/headrace. A field's type, name, default and comment are read from there. This writes

- the structs of the C API, in c.h and c_params.h, and their conversion to the C++ ones,
- the binding for Python, and its stub,
- the same classes for the tests' fake engine,
- docs/options.md.

A new option is a field in its header, a place in C_ORDER below, and a run of this. What it writes
is part of the repository: builds don't need it. tests/checks/test_options.py compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from option_table import ENUMS, HEADERS, STRUCTS, Field, Struct, Table, upper

ROOT = Path(__file__).resolve().parents[1]
SELF = "tools/generate_options.py"

# The order of C's fields is part of its ABI: a new one goes to the end, or takes the place of
# `reserved`. Those that aren't C++'s own names are explained by c_fields().
C_ORDER = {
    "PoolingParams": """
        logit_token_ids pooling dimensions normalize use_head second_text_at reserved""",
    "SamplingParams": """
        seed logit_bias bad_words stop_token_ids stop_sequences has_seed temperature top_p top_k
        min_p repetition_penalty frequency_penalty presence_penalty max_tokens min_tokens ignore_eos
        logprobs prompt_logprobs logprobs_kind temperature_scaled_logprobs
        top_p_normalized_logprobs penalize_output_only no_repeat_ngram_size stop_sequences_anywhere
        reserved""",
    "ModelOptions": """
        path device dtype kv_cache_dtype cpu_isa packed_weights kv_cache_bytes
        memory_leftover_bytes memory_utilization total_memory_ratio num_threads max_model_len
        max_num_seqs max_num_batched_tokens block_size num_kv_blocks max_prefill_chunk
        enable_prefix_caching dummy_weights out_of_blocks packed_copy max_loras max_lora_rank
        quantization_group_size quantization speculative_method speculative_model
        num_speculative_tokens min_ngram_size max_ngram_size tensor_parallel_size swap_space
        load_progress encoder_cache_bytes max_encoder_tokens enable_expert_parallel devices
        data_parallel_size num_state_slots snapshot_interval reserved""",
}
# They came when their struct was in use: 0, which older programs have there, is the default.
C_ZERO_IS_DEFAULT = {"tensor_parallel_size", "data_parallel_size"}
C_ENUMS = {
    "LogprobsKind": "HEADRACE_RAW_LOGPROBS",
    "OutOfBlocks": "HEADRACE_PREEMPT",
    "Pooling": "HEADRACE_POOL_LAST",
}
# In C a field of these has its struct's name before it, as its own would say too little.
C_PREFIXED = {("speculative", "method"), ("speculative", "model")}
REQUIRED = {("ModelOptions", "path")}


# --- Python --------------------------------------------------------------------------------------

PYTHON_TYPES = {
    "bool": "bool",
    "float": "float",
    "double": "float",
    "int32_t": "int",
    "size_t": "int",
    "std::string": "str",
    "std::vector<std::string>": "Sequence[str]",
    "std::vector<int32_t>": "Sequence[int]",
    "std::vector<std::vector<int32_t>>": "Sequence[Sequence[int]]",
    "std::vector<std::pair<int32_t, float>>": "Sequence[tuple[int, float]]",
    "std::optional<int32_t>": "int | None",
    "std::optional<uint64_t>": "int | None",
}


def python_type(field: Field) -> str:
    return PYTHON_TYPES.get(field.type, field.type)


def python_default(field: Field) -> str:
    """As Python writes it; "..." of a struct."""
    kind, value = python_type(field), field.default
    if field.type in ENUMS:
        return f"{field.type}.{upper(value.split('::k')[1])}"
    if kind == "float":
        return value.rstrip("f")
    if kind == "bool":
        return value.capitalize()
    if kind == "int":
        return value
    if kind == "str":
        return value or '""'
    if kind == "int | None":
        return "None"
    return "()" if kind.startswith("Sequence") else "..."


def stub(table: Table) -> str:
    out = []
    for name, values in table.enums.items():
        lines = [f"    {upper(value)} = {number}" for number, value in enumerate(values)]
        out.append("\n".join([f"class {name}(NamedIntEnum):", *lines]))
    for struct in STRUCTS:
        fields = table.in_python(struct.name)
        lines = [
            f"class {struct.name}:",
            f'    """{struct.about}: headrace/{struct.header}.',
            "",
            "    Keyword-only; an unknown one is a TypeError. Values are checked by what takes",
            "    them. Attributes that are sequences are copies.",
            '    """',
            "",
            *(f"    {field.name}: {python_type(field)}" for field in fields),
            "",
            "    def __init__(",
            "        self,",
            "        *,",
        ]
        for field in fields:
            default = "" if (struct.name, field.name) in REQUIRED else f" = {python_default(field)}"
            lines.append(f"        {field.name}: {python_type(field)}{default},")
        out.append("\n".join([*lines, "    ) -> None: ..."]))
    return "\n\n".join(out) + "\n"


def fake(table: Table) -> str:
    lines = [
        f'"""Options of the fake engine. Written by {SELF}."""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass, field",
        "from typing import Any",
        "",
        "from headrace.named_enum import NamedIntEnum",
    ]
    for name, values in table.enums.items():
        lines += ["", "", f"class {name}(NamedIntEnum):"]
        lines += [f"    {upper(value)} = {number}" for number, value in enumerate(values)]
    for struct in STRUCTS:
        lines += ["", "", "@dataclass(kw_only=True)", f"class {struct.name}:"]
        for field in table.in_python(struct.name):
            kind, default = python_type(field), python_default(field)
            if default == "...":
                default = f"field(default_factory={field.type})"
            kind = "Any" if default == "()" else kind
            required = (struct.name, field.name) in REQUIRED
            lines.append(f"    {field.name}: {kind}" + ("" if required else f" = {default}"))
    return "\n".join(lines) + "\n"


def binding(table: Table) -> str:
    headers = sorted({struct.header for struct in STRUCTS})
    lines = [
        f"// Written by {SELF} from the headers that it includes.",
        "// clang-format off",
        "",
        "#include <pybind11/native_enum.h>",
        "#include <pybind11/stl.h>",
        "",
        '#include "bindings.h"',
        *(f'#include "headrace/{header}"' for header in headers),
        '#include "struct_binder.h"',
        "",
        "namespace py = pybind11;",
        "",
        "namespace headrace::python {",
        "",
        "void bind_options(py::module_& module) {",
    ]
    for name, values in table.enums.items():
        lines.append(f'  py::native_enum<{name}>(module, "{name}", kEnumBase)')
        lines += [f'      .value("{upper(value)}", {name}::k{value})' for value in values]
        lines.append("      .finalize();")
    for struct in STRUCTS:
        about = f"{struct.about}: headrace/{struct.header}."
        lines.append(f'  StructBinder<{struct.name}>(module, "{struct.name}", "{about}")')
        for field in table.in_python(struct.name):
            method = "required" if (struct.name, field.name) in REQUIRED else "field"
            lines.append(f'      .{method}("{field.name}", &{struct.name}::{field.name})')
        lines[-1] += ";"
    return "\n".join([*lines, "}", "", "}  // namespace headrace::python"]) + "\n"


# --- C -------------------------------------------------------------------------------------------

C_NUMBERS = {
    "bool": "int32_t",
    "float": "float",
    "double": "double",
    "int32_t": "int32_t",
    "size_t": "size_t",
}
# Declarations, and what makes a C++ value of them. {0} is the name.
C_LISTS = {
    "std::vector<int32_t>": (
        ("const int32_t* {0};", "size_t num_{0};"),
        'to_ids(in.{0}, in.num_{0}, "{0}")',
    ),
    "std::vector<std::string>": (
        ("const char* const* {0};", "size_t num_{0};"),
        'to_texts(in.{0}, in.num_{0}, "{0}")',
    ),
    "std::vector<std::vector<int32_t>>": (
        ("headrace_token_lists {0};",),
        'to_lists(in.{0}, "{0}")',
    ),
    "std::vector<std::pair<int32_t, float>>": (
        (
            "const int32_t* {0}_ids; /* num_{0} of each */",
            "const float* {0}_values;",
            "size_t num_{0};",
        ),
        "to_{0}(in.{0}_ids, in.{0}_values, in.num_{0})",
    ),
}


@dataclass(frozen=True)
class CField:
    declarations: tuple[str, ...]
    default: str = ""  # a statement: `out` is the C struct, `from` the C++ one
    read: str = ""  # a statement: `in` is the C struct, `out` the C++ one


def c_comment(field: Field) -> str:
    shown = field.default.rstrip("f").strip('"')
    shown = {"true": "1", "false": "0"}.get(shown, shown)
    shown = shown.removesuffix(".0")
    if field.type in C_ENUMS:
        return f" /* {C_ENUMS[field.type]} ... */"
    if field.name in C_ZERO_IS_DEFAULT:
        return f" /* 0: {shown} */"
    return f" /* default {shown} */" if shown not in ("", "0") else ""


def c_field(field: Field, name: str, member: str, last: str) -> CField:
    """`name` in C; `member` of the C++ struct. `last`: of an enumeration, its last value."""
    note = c_comment(field)
    if field.type in C_NUMBERS:
        declared = (f"{C_NUMBERS[field.type]} {name};{note}",)
        value = f"in.{name} != 0" if field.type == "bool" else f"in.{name}"
        if field.name in C_ZERO_IS_DEFAULT:
            return CField(declared, read=f"if (in.{name} != 0) out.{member} = {value};")
        return CField(declared, f"out.{name} = from.{member};", f"out.{member} = {value};")
    if field.type in C_ENUMS:
        return CField(
            (f"int32_t {name};{note}",),
            f"out.{name} = static_cast<int32_t>(from.{member});",
            f'out.{member} = to_enum(in.{name}, {field.type}::k{last}, "{name}");',
        )
    if field.type == "std::string":
        read = f"out.{member} = or_empty(in.{name});"
        if field.default:  # its name for "choose", which "" stands for in C
            read = f"if (*or_empty(in.{name}) != '\\0') out.{member} = in.{name};"
        return CField((f"const char* {name};",), read=read)
    if field.type == "std::optional<int32_t>":
        return CField(
            (f"int32_t {name}; /* default -1: none */",),
            f"out.{name} = from.{member}.value_or(-1);",
            f"out.{member} = unless_negative(in.{name});",
        )
    if field.type == "std::optional<uint64_t>":
        return CField(
            (f"uint64_t {name}; /* used if has_{name} */",),
            read=f"if (in.has_{name} != 0) out.{member} = in.{name};",
        )
    declarations, call = C_LISTS[field.type]
    return CField(
        tuple(line.format(name) for line in declarations),
        read=f"out.{member} = {call.format(name)};",
    )


def c_fields(table: Table, struct: str) -> list[CField]:
    """In C's order. Every field of C++ has its place."""
    known = {
        "has_seed": CField(("int32_t has_seed;",)),
        "reserved": CField(("int32_t reserved; /* 0 */",), read="check_reserved(in.reserved);"),
    }
    for field in table.fields[struct]:
        if field.type == "LoadProgressSink":
            load = "headrace_load_fn load; /* told how far install or pack is; NULL: nobody is */"
            read = f"out.{field.name} = to_progress_sink(in.load, in.load_user_data);"
            known[field.name] = CField((load, "void* load_user_data;"), read=read)
        elif field.type in table.fields:
            for inner in table.fields[field.type]:
                prefixed = (field.name, inner.name) in C_PREFIXED
                name = f"{field.name}_{inner.name}" if prefixed else inner.name
                known[name] = c_field(inner, name, f"{field.name}.{inner.name}", "")
        elif field in table.in_python(struct):
            last = [*table.enums.get(field.type, [""])][-1]
            known[field.name] = c_field(field, field.name, field.name, last)
    order = C_ORDER[struct].split()
    for name in known:
        if name not in order and name not in ("has_seed", "reserved"):
            raise ValueError(f"{struct}: give {name} its place in C_ORDER of {SELF}")
    return [known[name] for name in order]


def c_struct(table: Table, struct: Struct) -> str:
    lines = ["/* clang-format off */", f"typedef struct {struct.in_c} {{", "  size_t struct_size;"]
    for field in c_fields(table, struct.name):
        lines += [f"  {declared}" for declared in field.declarations]
    return "\n".join([*lines, f"}} {struct.in_c};", "/* clang-format on */"]) + "\n"


def c_conversion(table: Table) -> str:
    lines = [
        f"// Written by {SELF}: the fields of C's options. Included by c_options.cc.",
        "// clang-format off",
    ]
    for struct in STRUCTS:
        if not struct.in_c:
            continue
        fields = c_fields(table, struct.name)
        word = struct.in_c.removeprefix("headrace_")
        lines += ["", f"{struct.in_c} default_{word}() {{", f"  const {struct.name} from;"]
        lines += [f"  {struct.in_c} out{{}};"]
        lines += [f"  {field.default}" for field in fields if field.default]
        lines += ["  return out;", "}", ""]
        lines += [f"{struct.name} read_{word}(const {struct.in_c}& in) {{", f"  {struct.name} out;"]
        lines += [f"  {field.read}" for field in fields if field.read]
        lines += ["  return out;", "}"]
    return "\n".join(lines) + "\n"


# --- docs ----------------------------------------------------------------------------------------


def docs_default(struct: Struct, field: Field) -> str:
    default = python_default(field)
    if (struct.name, field.name) in REQUIRED or default == "...":
        return ""
    if field.type in ENUMS:
        return default.split(".")[1]
    return {"None": "none", "()": "none", '""': ""}.get(default, default.strip('"'))


def docs(table: Table) -> str:
    lines = [
        "# Options of the engine",
        "",
        "The fields of C++'s structs. `headrace.Engine` and the C API have them by the same names.",
        "Those of `LLM` are in [api.md](api.md).",
    ]
    for struct in STRUCTS:
        lines += ["", f"## {struct.name}", "", f"{struct.about}: `headrace/{struct.header}`.", ""]
        lines += ["| field | default | meaning |", "|---|---|---|"]
        for field in table.in_python(struct.name):
            meaning = field.doc
            for value, doc in table.enums.get(field.type, {}).items():
                meaning += f" {upper(value)}{': ' if doc else ''}{doc};"
            meaning = meaning.strip().rstrip(";").replace("|", "\\|")
            lines.append(f"| `{field.name}` | {docs_default(struct, field)} | {meaning} |")
    return "\n".join(lines) + "\n"


# --- files ---------------------------------------------------------------------------------------


def between(text: str, comment: Callable[[str], str], name: str, new: str) -> str:
    """`text` with `new` between the marks of `name`."""
    first, last = comment(f"{name}: written by {SELF}"), comment(f"end of {name}")
    begin = text.index(f"{first}\n") + len(first) + 1
    return text[:begin] + new + text[text.index(last, begin) :]


def files(table: Table, root: Path) -> dict[str, str]:
    """What each file should be."""
    out = {
        "python/bindings/bind_options.cc": binding(table),
        "cpp/c_api/c_option_fields.inc": c_conversion(table),
        "tests/python/support/fake_options.py": fake(table),
        "docs/options.md": docs(table),
    }
    for header in ("c.h", "c_params.h"):
        text = (root / HEADERS / header).read_text()
        for struct in STRUCTS:
            if struct.c_header == header:
                text = between(text, "/* {} */".format, struct.in_c, c_struct(table, struct))
        out[f"{HEADERS}/{header}"] = text
    name = "python/headrace/_core.pyi"
    out[name] = between((root / name).read_text(), "# {}".format, "options", stub(table))
    return out


def outdated(root: Path = ROOT) -> Iterable[tuple[Path, str]]:
    """The files that are not what they should be, with what that is."""
    for name, text in files(Table(root), root).items():
        path = root / name
        if not path.exists() or path.read_text() != text:
            yield path, text


if __name__ == "__main__":
    for path, text in list(outdated()):
        path.write_text(text)
        print(path.relative_to(ROOT))
