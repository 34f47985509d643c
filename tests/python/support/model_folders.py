"""Model folders made on the fly: configuration and a small tokenizer, no weights."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Hello, world! How are you today?",
    "one two three four five six seven eight nine ten, stop here and there",
    "User: What is the capital of France?\nAssistant: Paris is the capital of France.\n",
    "你好,世界!今天天气很好。我们去公园散步吧。你好吗?",
    "naïve café — €5 «ça va» Ünïcödé 🙂 👩\u200d👩\u200d👧 🇫🇷 ελληνικά русский язык",
]
TEMPLATE = (
    "<s>{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n' }}"
    "{% elif m.role == 'user' %}{{ 'User: ' + m.content + '\n' }}"
    "{% else %}{{ 'Assistant: ' + m.content + '</s>' }}{% endif %}{% endfor %}"
    "{% if not enable_thinking %}[plain]{% endif %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
NOT_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}


def byte_level(vocab_size: int = 512) -> Tokenizer:
    """A byte-level BPE tokenizer with <s> as an optional first token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def byte_fallback(vocab_size: int = 400) -> Tokenizer:
    """A Llama-2-like BPE: spaces as U+2581, unknown characters as <0xNN> tokens."""
    from tokenizers import normalizers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS[:3], trainer)
    # Byte tokens are trained in as special tokens to fix their ids, but they aren't special.
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] in SPECIAL]
    return Tokenizer.from_str(json.dumps(spec))


def sentencepiece_model(vocab_size: int = 420, **options: Any) -> bytes:
    """A sentencepiece BPE with byte fallback."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS[:3] * 20),
        model_writer=model,
        vocab_size=vocab_size,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_config(folder: Path, vocab_size: int, **more: Any) -> None:
    write_json(
        folder / "config.json",
        {
            "model_type": "toy",
            "vocab_size": vocab_size,
            "eos_token_id": 2,
            "max_position_embeddings": 512,
            **more,
        },
    )


def byte_level_folder(folder: Path, **tokenizer_config: Any) -> Path:
    tokenizer = byte_level()
    tokenizer.save(str(folder / "tokenizer.json"))
    write_config(folder, tokenizer.get_vocab_size())
    write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": {"content": "<pad>"},
            "chat_template": TEMPLATE,
            **tokenizer_config,
        },
    )
    return folder


def make_decoder_slow(folder: Path) -> None:
    """Decoding an "e" takes more steps than are allowed."""
    path = folder / "tokenizer.json"
    file = json.loads(path.read_text())
    replaced = [("e", "a" * 40 + "b"), ("(a|aa)+$", "")]
    stages = [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in replaced
    ]
    file["decoder"] = {"type": "Sequence", "decoders": [file["decoder"], *stages]}
    write_json(path, file)


def sentencepiece_folder(folder: Path, tokenizer_config: Any = None, **options: Any) -> Path:
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(**options))
    write_config(folder, 1024)
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    write_json(folder / "tokenizer_config.json", {**config, **(tokenizer_config or {})})
    return folder


def byte_tokenizer() -> Tokenizer:
    """A token for each byte that UTF-8 has, nothing merged: it fits a vocabulary of 256."""
    # In the alphabet's order: printable bytes stand for themselves, the others for U+0100 onwards.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(0x100 + index) for index, byte in enumerate(others)}
    kept = [letters[byte] for byte in sorted(letters) if byte not in NOT_IN_UTF8]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *kept])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def golden_folder(name: str, folder: Path) -> Path:
    """The checkpoint of a golden case of 256 tokens, with a tokenizer of bytes and a template."""
    case = Path(__file__).resolve().parents[2] / "golden" / name
    folder.mkdir(parents=True)
    for file in case.iterdir():
        if not file.name.startswith("golden."):
            shutil.copy(file, folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE},
    )
    return folder
