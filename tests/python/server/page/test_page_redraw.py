"""While an answer is written, only what changes is drawn."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from page_chat import Chat

pytest_plugins = ["page_chat"]
SECTION = """## Section

Some **bold** words, `code`, *emphasis*, [a link](https://example.org/page) and \\(x^2 + y_1\\), in
a paragraph that goes on over two lines, as they do.

- one item with **bold** words
- another
  1. an inner one
  2. another inner one

| a | b | c |
|---|:-:|--:|
| 1 | 2 | 3 |

```python
def f(x, y):
    # a comment
    return "a string", 12.5, [one for one in range(x)]
```

"""
CODE = '    value = compute(one, "two", 3)  # and a comment\n'
KINDS = {
    "sections": SECTION,
    "list": "- an item with **bold** words and `code`\n",
}
# Shows the first of it, and, when window.go is called, writes on: some tokens a frame.
STREAM = """
window.waits = window.went = false;
(async () => {
  const { MarkdownView } = await import("/page/markdown/draw.js");
  const box = document.getElementById("messages");
  const node = document.createElement("article");
  node.className = "message assistant";
  const body = node.appendChild(document.createElement("div"));
  body.className = "body";
  box.replaceChildren(node);
  const view = new MarkdownView(body);
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const draw = (end) => {
    view.update(%s.slice(0, end), false);
    box.scrollTop = box.scrollHeight;
  };
  draw(%d);
  for (let at = 0; at < 5; at += 1) await frame();
  await new Promise((go) => Object.assign(window, { go, waits: true }));
  for (let at = 0; at < %d; at += 1) {
    await frame();
    draw(%d + 150 * (at + 1));
  }
  await frame();
  window.went = true;
})();
0
"""
FRAMES = 15


def frame_ms(chat: Chat, whole: str, start: int) -> float:
    """What a frame costs the page's thread, in ms of CPU: script, layout, painting."""
    chat.page.evaluate(STREAM % (json.dumps(whole), start, FRAMES, start))
    chat.page.until("window.waits")
    before = chat.page.cpu_seconds()
    chat.page.evaluate("window.go()")
    chat.page.until("window.went")
    return (chat.page.cpu_seconds() - before) * 1000 / FRAMES


def test_a_selection_stays_while_an_answer_is_written(chat: Chat) -> None:
    chat.llm.pieces = [f"w{at} **b{at}** " for at in range(40)] + ["\n\nEnd"]
    chat.llm.held, chat.llm.seconds = False, 0.02
    chat.ask("Write")
    chat.writes(30)
    chat.page.evaluate(
        """(() => {
          const [text, bold] = document.querySelector(".assistant p").childNodes;
          window.selected = text;
          getSelection().setBaseAndExtent(text, 0, bold.firstChild, 2);
        })()"""
    )
    chat.ended()
    assert chat.page.evaluate("getSelection().toString()") == "w0 b0"
    assert chat.page.evaluate(
        "document.querySelector('.assistant p').firstChild === window.selected"
    )
    assert chat.text(".assistant .body").endswith("w39 b39\n\nEnd")


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_answer_costs_what_it_grows_by(chat: Chat, kind: str) -> None:
    whole = KINDS[kind] * (160_000 // len(KINDS[kind]))
    early, late = (
        min(frame_ms(chat, whole, start) for _ in range(2)) for start in (8_000, 150_000)
    )
    print(f"{kind}: a frame costs {early:.1f} ms at 8 KB, {late:.1f} ms at 150 KB")
    # Nineteen times the text: drawn anew, it would cost as much more.
    assert late < 4 * early


def test_a_table_of_many_cells_is_shown_as_rows_of_text(chat: Chat) -> None:
    text = "a|b\n-|-\n" + "1|2\n" * 35_000 + "end|of it\n"
    cells, shown = chat.page.evaluate(
        f"""import("/page/markdown/draw.js").then(({{ MarkdownView }}) => {{
          const node = document.createElement("div");
          new MarkdownView(node).update({json.dumps(text)}, true);
          return [node.querySelectorAll("td").length, node.textContent];
        }})"""
    )
    assert cells < 6100
    assert shown.endswith("1|2\nend|of it\n")
