"""The chat page: its headers, and what it does in a browser."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chromium import CHROMIUM, Page

from serving import PlayedLLM, serving

NEEDS_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWER = """# Title

Some **bold**, *slanted* and `code` text, [a link](https://example.org) and
[a trap](javascript:alert(1)). <img src=x onerror="document.title='broken'">

- one
  1. inner
- two

```python
print("<b>hi</b>")
```

| a | b |
|---|---|
| 1 | <script>document.title = 'broken'</script> |

> quoted
"""


def test_headers_and_files() -> None:
    with serving() as url:
        page = httpx.get(url)
        names = re.findall(r'(?:href|src)="(page/[^"]+)"', page.text)
        names += ["page/api.js", "page/markdown.js", "page/store.js", "page/view.js"]
        files = [httpx.get(f"{url}/{name}") for name in names]
    assert [file.status_code for file in files] == [200] * len(files)
    for file in (page, *files):
        assert "default-src 'none'; script-src 'self'" in file.headers["content-security-policy"]
        assert file.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?://(?!www\.w3\.org)", file.text)
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(", file.text)


def test_without_the_page() -> None:
    with serving(chat_page=False) as url:
        assert httpx.get(url).status_code == 404
        assert httpx.get(f"{url}/page/app.js").status_code == 404


class Chat:
    """The page before a played model."""

    def __init__(self, page: Page, llm: PlayedLLM, folder: Path) -> None:
        self.page, self.llm, self._folder = page, llm, folder

    def ask(self, text: str) -> None:
        self.page.evaluate("document.getElementById('prompt').focus()")
        self.page.type(text)
        self.page.press("Enter")

    def count(self, selector: str) -> int:
        count: int = self.page.evaluate(f"document.querySelectorAll({selector!r}).length")
        return count

    def text(self, selector: str) -> str:
        text: str = self.page.evaluate(f"document.querySelector({selector!r}).innerText")
        return text

    def ended(self) -> None:
        self.page.until("document.querySelector('.assistant .foot button') !== null")

    def shot(self, name: str) -> None:
        """Kept where HEADRACE_SCREENSHOTS says."""
        self.page.screenshot(
            Path(os.environ.get("HEADRACE_SCREENSHOTS") or self._folder) / f"{name}.png"
        )


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    llm = PlayedLLM()
    with serving(llm) as url, Page(url, tmp_path / "profile") as page:
        page.until("document.querySelector('#model').value === 'm'")
        yield Chat(page, llm, tmp_path)


@NEEDS_BROWSER
def test_an_answer_is_shown_and_harmless(chat: Chat) -> None:
    pieces: list[Any] = [{"reasoning_content": "Let me *see*."}]
    pieces += re.findall(r"(?s).{1,7}", ANSWER)
    chat.llm.pieces = [*pieces, {"tool_calls": [CALL]}]
    chat.ask("Show <b>all</b>")
    chat.ended()
    assert chat.text(".user .body") == "Show <b>all</b>"
    body = ".assistant > .body "
    for selector in ("h1", "strong", "em", "ul > li > ol > li", "pre code", "td", "blockquote"):
        assert chat.count(body + selector), selector
    assert chat.count(body + "a") == 1
    assert chat.count(".assistant img, .assistant script, .assistant b") == 0
    assert chat.page.evaluate("document.title") == "Headrace"
    assert not chat.page.evaluate("document.querySelector('.thinking').open")
    assert chat.text(".tool summary") == "Calls f"
    assert re.search(r"\d+ tokens · [\d.]+ tokens/s", chat.text(".assistant .foot"))
    chat.shot("light")
    chat.page.dark()
    chat.page.until("document.documentElement.dataset.theme === 'dark'")
    chat.shot("dark")
    chat.page.resize(380, 700, mobile=True)
    chat.shot("phone")
    width = "document.documentElement.scrollWidth <= 380"
    assert chat.page.evaluate(width)
    chat.page.evaluate("document.getElementById('toggle-sidebar').click()")
    chat.page.until("document.querySelector('#sidebar').getBoundingClientRect().left === 0")
    chat.shot("phone_sidebar")


@NEEDS_BROWSER
def test_stopping_by_key_and_going_on(chat: Chat) -> None:
    chat.llm.pieces, chat.llm.seconds = ["word "] * 1000, 0.05
    chat.ask("Count")
    chat.page.until("document.querySelector('.assistant .body').innerText.length > 20")
    chat.page.press("Escape")
    chat.ended()
    assert "stopped" in chat.text(".assistant .foot")
    assert chat.count("#stop[hidden]") == 1
    chat.llm.pieces, chat.llm.seconds = ["Yes."], 0.0
    chat.ask("Go on")
    chat.page.until("document.querySelectorAll('.assistant .foot button').length === 4")
    sent = chat.llm.calls[-1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"].startswith("word word")
    assert chat.llm.cancelled == 1


@NEEDS_BROWSER
def test_settings_and_history_stay(chat: Chat) -> None:
    page = chat.page
    page.evaluate(
        """(() => {
          const form = document.getElementById("settings");
          const values = {system: "Be kind", temperature: 0.5, max_tokens: 7, api_key: "secret"};
          for (const [name, value] of Object.entries(values)) {
            form.elements[name].value = value;
            form.elements[name].dispatchEvent(new Event("change", {bubbles: true}));
          }
        })()"""
    )
    chat.ask("First question")
    chat.ended()
    call = chat.llm.calls[-1]
    assert call["messages"][0] == {"role": "system", "content": "Be kind"}
    assert (call["params"].temperature, call["params"].max_tokens) == (0.5, 7)
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
    page.evaluate("window.isOld = true; location.reload()")
    page.until("!window.isOld && document.querySelectorAll('#conversations .open').length === 1")
    assert chat.text("#conversations .open") == "First question"
    page.evaluate("document.querySelector('#conversations .open').click()")
    page.until("document.querySelectorAll('.message').length === 2")
    assert page.evaluate("document.getElementById('settings').elements.max_tokens.value") == "7"
    page.evaluate("document.getElementById('toggle-settings').click()")
    chat.shot("settings")
    page.evaluate("document.querySelector('#conversations .delete').click()")
    page.until("document.querySelectorAll('#conversations li').length === 0")


@NEEDS_BROWSER
def test_errors_are_shown(chat: Chat) -> None:
    chat.llm.error = (400, "the prompt is too long")
    chat.ask("Hi")
    chat.ended()
    assert "the prompt is too long" in chat.text(".assistant .error")
