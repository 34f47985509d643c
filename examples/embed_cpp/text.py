"""Text for a program that speaks token ids, and back:

python text.py encode MODEL "What is 2 + 2?" "Name a colour." |
  build/embed_cpp MODEL |
  python text.py decode MODEL
"""

import sys

from headrace.text.output_text import Detokenizer
from headrace.text.tokenizer import Tokenizer


def encode(tokenizer: Tokenizer, questions: list[str]) -> None:
    for question in questions:
        print(*tokenizer.apply_chat_template([{"role": "user", "content": question}]))


def decode(tokenizer: Tokenizer) -> None:
    """Each answer as soon as it has ended."""
    streams: dict[str, Detokenizer] = {}
    texts: dict[str, str] = {}
    for line in sys.stdin:
        number, is_tokens, ids = line.strip().partition(": ")
        if not (is_tokens and number.isdigit()):
            number, _, end = line.strip().partition("= ")
            rest = streams[number].finish() if number in streams else ""
            print(f"[{number}] {texts.get(number, '')}{rest} ({end})")
            continue
        stream = streams.setdefault(number, tokenizer.detokenizer(skip_special_tokens=True))
        texts[number] = texts.get(number, "") + "".join(stream.push(int(i)) for i in ids.split())


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("encode", "decode"):
        sys.exit(__doc__)
    loaded = Tokenizer.from_pretrained(sys.argv[2])
    if sys.argv[1] == "encode":
        encode(loaded, sys.argv[3:])
    else:
        decode(loaded)
