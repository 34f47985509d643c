"""A model folder whose tokenizer and template know thinking and tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import native_model
from model_folders import byte_level, byte_level_folder, write_config

THINK, CALL = ["<think>", "</think>"], ["<tool_call>", "</tool_call>"]
TEMPLATE = (
    "{% if tools %}{{ 'Tools: ' + (tools | tojson) + '\n' }}{% endif %}"
    "{% for m in messages %}{{ m.role + ': ' + m.content }}"
    "{% for call in m.tool_calls or [] %}"
    "{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{% endfor %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}"
    "{% if enable_thinking %}{{ '<think>\n' }}{% else %}{{ '<think>\n\n</think>\n\n' }}"
    "{% endif %}{% endif %}"
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "minimum": 0, "maximum": 99},
                    "b": {"enum": [1, 2, 3]},
                },
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "pick",
            "parameters": {
                "type": "object",
                "properties": {"color": {"enum": ["red", "blue"]}},
                "required": ["color"],
                "additionalProperties": False,
            },
        },
    },
]


def make_folder(folder: Path, special_calls: bool = False, template: str = TEMPLATE) -> Path:
    """With random weights, for the real engine. special_calls: their tags are control tokens."""
    byte_level_folder(folder, chat_template=template)
    tokenizer = byte_level()
    tokenizer.add_tokens(THINK)
    (tokenizer.add_special_tokens if special_calls else tokenizer.add_tokens)(CALL)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_config(folder, tokenizer.get_vocab_size(), **native_model.LLAMA)
    return folder


def is_call(name: str, arguments: str) -> bool:
    """Whether the arguments are JSON of the function's schema."""
    value: Any = json.loads(arguments)
    if name == "add":
        return set(value) == {"a", "b"} and 0 <= value["a"] <= 99 and value["b"] in (1, 2, 3)
    return name == "pick" and value in ({"color": "red"}, {"color": "blue"})
