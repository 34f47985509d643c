"""What the real model is asked: twelve chats and six texts."""

from __future__ import annotations

NEW_TOKENS = 64


def _asked(question: str, system: str | None = None) -> list[dict[str, str]]:
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": question}]


CHATS = [
    _asked("What is the capital of France?"),
    _asked("Write a short poem about the sea."),
    _asked("Explain in two sentences why the sky is blue."),
    _asked("List five animals that live in Africa."),
    _asked("Translate 'good morning' into Spanish.", "You are a careful translator."),
    _asked("What is 17 plus 25?", "Answer with a number alone."),
    _asked("Write a Python function that reverses a string."),
    _asked("Give me a recipe for pancakes."),
    _asked("Who wrote Romeo and Juliet, and when?"),
    _asked("你好，请介绍一下你自己。"),
    [
        *_asked("My name is Ada."),
        {"role": "assistant", "content": "Nice to meet you, Ada!"},
        {"role": "user", "content": "What is my name?"},
    ],
    _asked("Summarize: " + "The river rose all night, and by dawn the bridge was gone. " * 12),
]
TEXTS = [
    "Once upon a time",
    "The three laws of thermodynamics are",
    "def fibonacci(n):\n    ",
    "In 1969, the first humans",
    "Ingredients:\n- 2 eggs\n- 1 cup of flour\n",
    "The quick brown fox jumps over the lazy dog. " * 40,
]
