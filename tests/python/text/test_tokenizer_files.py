"""Tokenizer files that no honest model has: each gives an error that names it, and soon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest
import tokenizers

from headrace.errors import TokenizerError
from headrace.options.generation_defaults import read_generation_defaults
from headrace.text.templates.chat_template import load_chat_template
from headrace.text.tokenizer import Tokenizer

MAX_TOKEN_ID = (1 << 22) - 1

SIDE_FILES = [
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "chat_template.jinja",
    "generation_config.json",
]


def as_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "can't be read": as_socket,
    "a link to a file that isn't there": lambda path: path.symlink_to("nowhere"),
    "1099511627776 bytes": sparse,
}


def read_all(folder: Path) -> None:
    Tokenizer.from_pretrained(folder)
    read_generation_defaults(folder)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", SIDE_FILES)
def test_what_is_no_file(name: str, kind: str, tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    if name == "tokenizer.model":
        (folder / "tokenizer.json").unlink()
    (folder / name).unlink(missing_ok=True)
    KINDS[kind](folder / name)
    with pytest.raises(TokenizerError, match=name) as caught:
        read_all(folder)
    assert kind in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(tmp_path)
    (folder / "tokenizer.json").chmod(0)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json can't be read"):
        Tokenizer.from_pretrained(folder)


def test_a_template_from_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "template")
    with pytest.raises(ValueError, match="must be a file, but is a pipe"):
        load_chat_template(str(tmp_path / "template"))


def spec_of(folder: Path) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())
    return spec


def with_spec(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    model_folders.byte_level_folder(folder)
    spec = spec_of(folder)
    change(spec)
    model_folders.write_json(folder / "tokenizer.json", spec)
    return folder


class TestBounds:
    def test_an_id_far_beyond_the_vocabulary(self, tmp_path: Path) -> None:
        folder = with_spec(tmp_path, lambda spec: spec["model"]["vocab"].update(far=3 * 10**8))
        with pytest.raises(TokenizerError, match=r'tokenizer\.json: .*"far" must be in 0'):
            Tokenizer.from_pretrained(folder)

    @pytest.mark.parametrize("key", [str(3 * 10**8), "-1", "9" * 5000, "x", "1.5"], ids=len)
    def test_an_added_token_far_beyond(self, key: str, tmp_path: Path) -> None:
        folder = model_folders.byte_level_folder(
            tmp_path, added_tokens_decoder={key: {"content": "<far>"}}
        )
        with pytest.raises(TokenizerError, match=r'tokenizer_config\.json: the id of .*"<far>"'):
            Tokenizer.from_pretrained(folder)

    @pytest.mark.parametrize(
        "value", ["-1", "300000000", '"x"', "1.5", "null", "9" * 5000], ids=len
    )
    def test_an_entry_of_added_tokens_json(self, value: str, tmp_path: Path) -> None:
        folder = model_folders.byte_level_folder(tmp_path)
        (folder / "added_tokens.json").write_text(f'{{"<far>": {value}}}')
        with pytest.raises(TokenizerError, match=r"added_tokens\.json"):
            Tokenizer.from_pretrained(folder)

    def test_a_sentencepiece_folder_has_them_too(self, tmp_path: Path) -> None:
        config = {"added_tokens_decoder": {str(MAX_TOKEN_ID + 1): {"content": "<far>"}}}
        folder = model_folders.sentencepiece_folder(tmp_path, config)
        with pytest.raises(TokenizerError, match='the id of the added token "<far>"'):
            Tokenizer.from_pretrained(folder)

    @pytest.mark.parametrize("name", ["additional_special_tokens", "extra_special_tokens"])
    def test_special_tokens_that_are_no_list(self, name: str, tmp_path: Path) -> None:
        folder = model_folders.byte_level_folder(tmp_path, **{name: 5})
        with pytest.raises(TokenizerError, match=f"{name} must be a list, got 5"):
            Tokenizer.from_pretrained(folder)

    @pytest.mark.parametrize("kind", ["String", "Regex"])
    @pytest.mark.parametrize("part", ["normalizer", "decoder"])
    def test_replacements_that_blow_texts_up(self, part: str, kind: str, tmp_path: Path) -> None:
        steps = [{"type": "Replace", "pattern": {kind: "a"}, "content": "aa" * 32}] * 40

        def change(spec: dict[str, Any]) -> None:
            spec[part] = {"type": "Sequence", f"{part}s": steps}

        with pytest.raises(TokenizerError, match=rf"tokenizer\.json: the {part} makes a text more"):
            Tokenizer.from_pretrained(with_spec(tmp_path, change))

    def test_a_long_token_is_quoted_in_part(self, tmp_path: Path) -> None:
        folder = model_folders.byte_level_folder(
            tmp_path, added_tokens_decoder={"x": {"content": "a" * 10**6}}
        )
        with pytest.raises(TokenizerError) as caught:
            Tokenizer.from_pretrained(folder)
        assert len(str(caught.value)) < 1000


def test_thousands_of_added_tokens_are_added_in_one_call(tmp_path: Path) -> None:
    size = tokenizers.Tokenizer.from_file(
        str(model_folders.byte_level_folder(tmp_path) / "tokenizer.json")
    ).get_vocab_size()
    more = {str(size + i): {"content": f"<extra_{i}>", "special": i % 2 == 0} for i in range(8000)}
    model_folders.byte_level_folder(tmp_path, added_tokens_decoder=more)
    start = time.process_time()
    own = Tokenizer.from_pretrained(tmp_path)
    assert time.process_time() - start < 5  # one by one: more than 15
    assert own.encode("<extra_7><extra_7999>") == [size + 7, size + 7999]
    assert own.decode([size + 6, size + 7], skip_special_tokens=True) == "<extra_7>"


def test_added_tokens_of_one_name(tmp_path: Path) -> None:
    folder = model_folders.byte_level_folder(
        tmp_path, added_tokens_decoder={"600": {"content": "<x>"}, "601": {"content": "<x>"}}
    )
    own = Tokenizer.from_pretrained(folder)
    assert len(own.encode("<x>")) == 1


def test_dropout_is_off(tmp_path: Path) -> None:
    folder = with_spec(tmp_path, lambda spec: spec["model"].update(dropout=0.9))
    own, plain = Tokenizer.from_pretrained(folder), model_folders.byte_level()
    text = model_folders.CORPUS[0]
    for _ in range(5):
        assert own.encode(text) == plain.encode(text, add_special_tokens=False).ids


class TestMemory:
    def test_a_large_file_under_a_limit(self, tmp_path: Path) -> None:
        folder = with_spec(
            tmp_path,
            lambda spec: spec["model"]["vocab"].update(
                {f"{i:08x}": 1000 + i for i in range(400_000)}
            ),
        )
        code = f"""
import resource, sys
sys.path[:] = {sys.path!r}
from headrace.text.tokenizer import Tokenizer
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (16 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    Tokenizer.from_pretrained({str(folder)!r})
except MemoryError:
    print("no memory")
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "no memory\n"), done.stderr


class TestLongTexts:
    TEXT = "Hello, world! " * 450_000  # 6 MB

    def test_one_that_cannot_fit_is_not_tokenized(self, tmp_path: Path) -> None:
        own = Tokenizer.from_pretrained(model_folders.byte_level_folder(tmp_path))
        for _ in range(2):
            start = time.thread_time()
            with pytest.raises(TokenizerError, match="the text is too long: it has 6300000 bytes"):
                own.encode(self.TEXT, max_tokens=512)
            assert time.thread_time() - start < 0.1

    def test_the_bound_lets_every_text_through_that_fits(
        self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folders = [
            model_folders.byte_level_folder(tmp_path),
            model_folders.sentencepiece_folder(tmp_path_factory.mktemp("sp")),
        ]
        for folder in folders:
            own = Tokenizer.from_pretrained(folder)
            longest = max(
                (own.convert_ids_to_tokens(i) or "" for i in range(len(own))),
                key=lambda token: len(token.encode()),
            )
            text = own.decode([own.convert_tokens_to_ids(longest)] * 20_000)
            assert len(own.encode(text, max_tokens=20_002)) <= 20_002
            with pytest.raises(TokenizerError, match="too long"):
                own.encode(text * 4, max_tokens=20_000)

    def test_of_a_prompt_and_of_a_conversation(self, make_llm: Any) -> None:
        llm = make_llm(max_model_len=64)
        (output,) = llm.generate(self.TEXT, use_tqdm=False)
        assert output.error_code == 400
        assert "the text is too long" in output.error_msg
        for prompt in (
            {"prompt": self.TEXT},
            {"messages": [{"role": "user", "content": self.TEXT}]},
        ):
            (output,) = llm.generate(prompt, use_tqdm=False)
            assert "the text is too long" in output.error_msg
        (output,) = llm.chat([{"role": "user", "content": self.TEXT}], use_tqdm=False)
        assert "the text is too long" in output.error_msg
