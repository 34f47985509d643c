"""Includes point down only: base <- tensor <- memory <- backend <- {kv, model, sample} <- sched
<- engine <- {c_api, bindings, tests}. `sched` uses `kv` but neither `backend` ops nor `model`;
`c_api` uses the public headers, `media` only `base`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Folders of cpp/ and what each may include besides itself and the public headers it implements.
ALLOWED = {
    "base": set(),
    "media": {"base"},
    "tensor": {"base"},
    "memory": {"base", "tensor"},
    "backend": {"base", "tensor", "memory"},
    "kv": {"base", "tensor", "memory", "backend"},
    "model": {"base", "tensor", "memory", "backend"},
    "sample": {"base", "tensor", "memory", "backend"},
    "sched": {"base", "kv"},
    "spec": {"base"},
    "engine": {"base", "tensor", "memory", "backend", "kv", "model", "sample", "spec", "sched"},
    "c_api": {"base"},
    "grammar": {"base"},
    "include/headrace": set(),
}
PUBLIC = "headrace"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "cpp").parts
    return "include/headrace" if parts[0] == "include" else parts[0]


def sources() -> list[Path]:
    return sorted(p for p in (ROOT / "cpp").rglob("*") if p.suffix in {".h", ".cc", ".inc"})


def violations(room: str, text: str) -> list[str]:
    found = []
    for target in INCLUDE.findall(text):
        head = target.split("/")[0]
        if head not in {room, PUBLIC, *ALLOWED[room]}:
            found.append(target)
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_includes_point_down(path: Path) -> None:
    assert violations(room_of(path), path.read_text()) == []


def test_an_upward_edge_is_found() -> None:
    assert violations("kv", '#include "sched/scheduler.h"\n') == ["sched/scheduler.h"]
    assert violations("sched", '#include "backend/contract/backend.h"\n') == [
        "backend/contract/backend.h"
    ]


def cuda_violations(path: str, text: str) -> list[str]:
    """cuda/ uses the rooms up to backend; its device code uses itself and the CUDA toolkit, or the
    emulation in its place; its host side no CUDA header but in runtime/runtime_api.cc."""
    found = []
    for target in INCLUDE.findall(text):
        parts = target.split("/")
        if path.startswith("cuda/device/"):
            if not target.startswith("cuda/device/") and target != "cuda_emulation.h":
                found.append(target)
        elif len(parts) > 1 and parts[0] not in {"cuda", PUBLIC, "backend", *ALLOWED["backend"]}:
            found.append(target)
    if path.startswith("cuda/host/") and path != "cuda/host/runtime/runtime_api.cc":
        found += re.findall(r"#\s*include\s*<(cuda[^>]*)>", text)
    return found


def test_cuda_uses_the_rooms_below_the_models() -> None:
    found = {}
    for path in sorted((ROOT / "cuda").rglob("*")):
        if path.suffix in {".h", ".cc", ".cu", ".cuh"}:
            name = path.relative_to(ROOT).as_posix()
            if bad := cuda_violations(name, path.read_text()):
                found[name] = bad
    assert not found
    assert cuda_violations("cuda/device/x.cuh", '#include "base/check.h"\n') == ["base/check.h"]
    assert cuda_violations("cuda/host/x.cc", '#include "model/json/json.h"\n') == [
        "model/json/json.h"
    ]


def test_cpp_never_includes_cuda() -> None:
    for path in sources():
        assert not re.search(r"#\s*include\s*[<\"]cuda", path.read_text()), path


def test_public_headers_hold_no_feature_switch() -> None:
    for path in (ROOT / "cpp/include/headrace").glob("*.h"):
        text = path.read_text()
        if path.name in ("c.h", "c_params.h"):  # C and C++ read them
            text = re.sub(r"#ifdef __cplusplus\n(extern \"C\" \{|\})\n#endif", "", text)
        if path.name == "abi.h":  # says what the compiler lacks
            text = re.sub(r"#if __cplusplus <= \d+L\n#error[^#]*#endif", "", text)
        assert not re.search(r"#\s*if", text), f"{path.name} has a conditional"
        assert "pybind" not in text
        assert "cuda" not in re.sub(r'//.*|"[^"]*"', "", text).lower()
