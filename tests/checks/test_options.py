"""The public structs of the C++ headers are the table of options and results: the C API, the Python
module, its stub and the fake that tests use have each field too, or a reason not to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "cpp/include/headrace"
BINDINGS = "\n".join(p.read_text() for p in sorted((ROOT / "python/bindings").rglob("*.cc")))
STUB = (ROOT / "python/headrace/_core.pyi").read_text()
FAKE = (ROOT / "tests/python/support/fake_types.py").read_text()

# Struct: its header, and its name in headrace/c.h.
STRUCTS = {
    "ModelOptions": ("options.h", "headrace_model_options"),
    "SpeculativeOptions": ("options.h", None),
    "SamplingParams": ("sampling_params.h", "headrace_sampling_params"),
    "PoolingParams": ("pooling_params.h", "headrace_pooling_params"),
    "RequestOptions": ("request.h", "headrace_request_options"),
    "ModelInfo": ("engine.h", "headrace_model_info"),
    "ModelStats": ("engine.h", "headrace_model_stats"),
    "LoraInfo": ("engine.h", "headrace_lora_info"),
}

# Fields that a place has under another name, or not as a field.
ELSEWHERE = {
    ("ModelOptions", "speculative", "headrace/c.h"): "speculative_method and its like",
    ("ModelOptions", "load_progress", "headrace/c.h"): "headrace_load_fn, given to the load",
    ("ModelOptions", "load_stop", "headrace/c.h"): "headrace_load_fn, given to the load",
    ("ModelOptions", "load_progress", "_core.pyi"): "a parameter of install_model",
    ("ModelOptions", "load_stop", "_core.pyi"): "Ctrl-C, and a parameter of install_model",
    ("ModelOptions", "load_progress", "tests/python/support/fake_types.py"): "as _core.pyi",
    ("ModelOptions", "load_stop", "tests/python/support/fake_types.py"): "as _core.pyi",
    ("ModelInfo", "replaced_kernels", "headrace/c.h"): "the log names them",
    ("SamplingParams", "logit_bias", "headrace/c.h"): "logit_bias_ids and logit_bias_values",
}
# The fake's submit() takes them as parameters (fake_core.py).
FAKE += (ROOT / "tests/python/support/fake_core.py").read_text()


def body(text: str, start: str) -> str:
    """From `start` to the brace that closes what it opens."""
    begin = text.index(start)
    depth = 0
    for at in range(text.index("{", begin), len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at]
    raise AssertionError(start)


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def fields(header: str, struct: str) -> list[str]:
    """Names of a C++ struct's data members."""
    text = body(without_comments((HEADERS / header).read_text()), f"struct {struct} {{")
    found = []
    for statement in text.split("{", 1)[1].split(";"):
        plain = re.sub(r"\{[^{}]*\}", "", statement)  # initializers
        plain = re.sub(r"<[^;]*>", "", plain)
        if "(" in plain or not plain.strip():
            continue
        names = [part.split("=")[0].split()[-1] for part in plain.split(",")]
        found += [name for name in names if re.fullmatch(r"[a-z]\w*", name)]
    return found


CASES = [
    (struct, name) for struct, (header, _) in STRUCTS.items() for name in fields(header, struct)
]


def test_the_structs_are_read() -> None:
    assert {"path", "swap_space", "load_stop"} <= set(fields("options.h", "ModelOptions"))
    assert {"num_kv_blocks", "eos_token_ids"} <= set(fields("engine.h", "ModelInfo"))
    assert len(CASES) > 100


@pytest.mark.parametrize(("struct", "field"), CASES)
def test_every_way_in_has_the_field(struct: str, field: str) -> None:
    in_c = STRUCTS[struct][1]
    c_text = "".join((HEADERS / name).read_text() for name in ("c.h", "c_params.h"))
    c_body = body(without_comments(c_text), f"typedef struct {in_c} {{") if in_c else ""
    word = re.compile(rf"\b{field}\b")
    missing = [
        name
        for name, text in {
            "headrace/c.h": c_body if in_c else field,
            "python/bindings": BINDINGS,
            "_core.pyi": STUB,
            "tests/python/support/fake_types.py": FAKE,
        }.items()
        if not word.search(text) and (struct, field, name) not in ELSEWHERE
    ]
    assert not missing
