"""What error messages show of bad values, and texts that the engine can't take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace import Engine, LoRARequest
from headrace.hub import resolve_model
from headrace.quoting import MAX_CHARS, checked_text, quoted, shortened

PACKAGE = Path(__file__).resolve().parents[3] / "python" / "headrace"


class Loud:
    def __repr__(self) -> str:
        return "L" * 10**6


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "5"),
        ("it's", '"it\'s"'),
        (None, "None"),
        ([1, "a", {"b": (2.5,)}], "[1, 'a', {'b': (2.5,)}]"),
        (10**5000, "<an int of 16610 bits>"),
        ("\ud800\0", "'\\ud800\\x00'"),
        (b"ab", "b'ab'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_small_values_are_shown_whole(value: Any, shown: str) -> None:
    assert quoted(value) == shown


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**7,
        b"x" * 10**7,
        list(range(10**6)),
        dict.fromkeys(range(10**5), "x" * 100),
        [["x" * 1000] * 1000] * 1000,
        Loud(),
        DEEP,
        Broken(),
        10**300,
        {"a": {"b": {"c": {"d": ["e" * 500]}}}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_large_values_are_cut(value: Any) -> None:
    assert len(quoted(value)) <= MAX_CHARS


def test_shortened() -> None:
    assert shortened("a" * 200) == "a" * 200
    assert shortened("a" * 201) == "a" * 197 + "..."
    assert shortened("abcdef", 5) == "ab..."


def test_nobody_quotes_otherwise() -> None:
    """!r in a message shows all of a value, however large; a name of ours may be shown so."""
    ours = re.compile(r"\{(name|near\[0\]|self\.model\.name|__name__|self\.__name__)!r\}")
    wrong = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\{[^{}]+!r(:[^}]*)?\}", ours.sub("", line))
        and "__repr__" not in line
        and path.name != "short_repr.py"  # shows objects, not values of callers in messages
    ]
    assert not wrong, "use headrace.quoting.quoted"


@pytest.mark.parametrize(("text", "what"), [("a\0b", "NUL"), ("a\ud800", "lone surrogate")])
class TestTextsTheEngineCannotTake:
    def test_checked(self, text: str, what: str) -> None:
        with pytest.raises(ValueError, match=f"^request_id has a {what}"):
            checked_text(text, "request_id")

    def test_names_of_models(self, text: str, what: str, fake_engine: Any) -> None:
        with Engine() as engine:
            for call in (
                lambda: engine.install_model(text, "folder"),
                lambda: engine.start_model(text),
                lambda: engine.stop_model(text),
                lambda: engine.release_model(text),
                lambda: engine.model_info(text),
                lambda: engine.model_stats(text),
                lambda: engine.loras(text),
                lambda: engine.load_lora(text, "a", "b"),
                lambda: engine.unload_lora(text, "a"),
                lambda: engine.clear_prefix_cache(text),
                lambda: engine.submit(text, [1]),
            ):
                with pytest.raises(ValueError, match=f"the model's name has a {what}"):
                    call()

    def test_other_names(self, text: str, what: str, fake_engine: Any) -> None:
        with Engine() as engine:
            for name, call in {
                "path": lambda: engine.install_model("m", text),
                "request_id": lambda: engine.submit("m", [1], request_id=text),
                "lora": lambda: engine.submit("m", [1], lora=text),
                "name": lambda: engine.load_lora("m", text, "folder"),
                "the path of the model": lambda: resolve_model(text),
                "lora_name": lambda: LoRARequest(text, 1, "folder"),
                "lora_path": lambda: LoRARequest("a", 1, text),
            }.items():
                with pytest.raises(ValueError, match=f"^{name} has a {what}"):
                    call()

    def test_of_a_prompt(self, text: str, what: str, llm: Any) -> None:
        asked = [{"prompt": "x", "request_id": text}, {"prompt": "y"}]
        bad, good = llm.generate(asked, use_tqdm=False)
        assert f"request_id has a {what}" in bad.error_msg
        assert good.error_code == 200

    def test_as_a_prompt(self, text: str, what: str, llm: Any) -> None:
        """NUL is a character like any other; a lone surrogate is no text."""
        for outputs in (
            llm.generate([text, "y"], use_tqdm=False),
            llm.chat([[{"role": "user", "content": c}] for c in (text, "y")], use_tqdm=False),
        ):
            assert outputs[1].error_code == 200
            assert outputs[0].error_code == (200 if what == "NUL" else 400)
            if what != "NUL":
                assert "cannot tokenize the text" in outputs[0].error_msg
