"""The chat page: its headers, how it shows an answer, settings, errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from headrace.llm.outputs import RequestMetrics
from headrace.server.page import page_files
from serving import serving

if TYPE_CHECKING:
    from page_chat import Chat

pytest_plugins = ["page_chat"]
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TRAPS = """[a link](https://example.org), [a trap](javascript:alert(1)) and
<img src=x onerror="document.title='broken'">

| a | b |
|:--|--:|
| 1 | <script>document.title = 'broken'</script> |
| 2 \\| 3 | $x^2$ |

![of another place](https://example.org/a.png)
"""
ANSWER = r"""## How a headrace works

A headrace brings water to the wheel. Its **slope** is small, so that little of the head is lost;
the *power* at the wheel is

\[ P = \eta \rho g \int_0^T \frac{Q(t)\, h}{T} \, dt \]

where \(\eta\) is the wheel's efficiency and $\rho \approx 1000$. Water costs $5 or $10, not more.

1. Measure the flow.
   - [x] width and depth
   - [ ] speed, with `float` and clock
2. Choose the wheel:

| wheel | head in m | efficiency |
|:------|:---------:|-----------:|
| undershot | 0.3 \| 1 | 40 % |
| breastshot | 1 – 3 | 65 % |
| overshot | 2 – 10 | 85 % |

```python
def power(flow, head, efficiency=0.85):
    # watts: water weighs 1000 kg per cubic metre
    return 1000 * 9.81 * flow * head * efficiency

print(f"{power(0.4, 3) / 1000:.1f} kW")  # "10.0 kW"
```

> What the race loses, the wheel can't win.
"""


def pieces(text: str, length: int = 7) -> list[Any]:
    return [text[at : at + length] for at in range(0, len(text), length)]


def test_headers_and_files() -> None:
    paths = page_files()
    assert {"/", "/page/app.js", "/page/text.css", "/page/markdown/blocks.js"} <= paths.keys()
    with serving() as url, httpx.Client() as client:
        files = {path: client.get(url + path) for path in paths}
        missing = client.get(f"{url}/page/__init__.py").status_code
    assert missing == 404
    named = re.findall(r'(?:href|src)="(page/[^"]+)"', files["/"].text)
    assert {f"/{name}" for name in named} <= paths.keys()
    for path, file in files.items():
        assert file.status_code == 200, path
        policy = file.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert file.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?://(?!www\.w3\.org)", file.text), path
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        assert not re.search(forbidden, file.text), path
        assert len(file.text.splitlines()) <= 500, path


def test_without_the_page() -> None:
    with serving(chat_page=False) as url:
        assert httpx.get(url).status_code == 404
        assert httpx.get(f"{url}/page/app.js").status_code == 404


def test_an_answer_is_shown(chat: Chat) -> None:
    thought = {"reasoning_content": "How *wheels* work, and what they need."}
    chat.llm.pieces = [thought, *pieces(ANSWER), {"tool_calls": [CALL]}]
    chat.ask("How does a headrace work?")
    chat.ended()
    body = ".assistant > .body "
    for selector in ("h2", "strong", "em", "ol > li > ul > li.task", "blockquote", "code"):
        assert chat.count(body + selector), selector
    assert chat.count(body + "li.task > input:checked") == 1
    assert chat.text(body + "tr:nth-child(1) td:nth-child(2)") == "0.3 | 1"
    assert chat.count(body + "td.center") == chat.count(body + "td.right") == 3
    assert chat.count(body + "math[display=block] mfrac") == 1
    assert chat.count(body + "math") == 3
    assert "Water costs $5 or $10" in chat.text(body)
    for kind in ("keyword", "comment", "number", "string", "name"):
        assert chat.count(f"{body} pre .c-{kind}"), kind
    code = chat.page.evaluate(f"document.querySelector('{body} pre').textContent")
    assert code.startswith("def power(flow, head, efficiency=0.85):\n    # watts")
    assert not chat.page.evaluate("document.querySelector('.thinking').open")
    assert chat.text(".tool summary") == "Calls f"
    assert chat.page.evaluate("document.title") == "How does a headrace work? – Headrace"
    chat.shot("light")
    chat.page.scheme("dark")
    chat.page.until("document.documentElement.dataset.theme === 'dark'")
    chat.shot("dark")
    chat.page.resize(380, 700, mobile=True)
    chat.shot("phone")
    assert chat.page.evaluate("document.documentElement.scrollWidth <= 380")
    chat.page.evaluate("document.getElementById('toggle-sidebar').click()")
    chat.page.until("document.querySelector('#sidebar').getBoundingClientRect().left === 0")
    chat.shot("phone_sidebar")


def test_an_answer_is_harmless(chat: Chat) -> None:
    chat.llm.pieces = pieces(TRAPS)
    chat.ask("Show <b>all</b>")
    chat.ended()
    assert chat.text(".user .body") == "Show <b>all</b>"
    links = "[...document.querySelectorAll('.assistant a')].map(one => one.href)"
    assert chat.page.evaluate(links) == ["https://example.org/", "https://example.org/a.png"]
    assert chat.count(".assistant img, .assistant script, .assistant b") == 0
    assert chat.page.evaluate("document.title") == "Show <b>all</b> – Headrace"
    assert chat.text(".assistant tr:nth-child(2) td") == "2 | 3"


def test_the_servers_clock_says_how_fast(chat: Chat) -> None:
    times = {"inference_start_time": 9.0, "engine_recv_first_token_time": 10.0}
    chat.llm.metrics = RequestMetrics(**times, engine_recv_latest_token_time=10.05)
    chat.ask("How fast?")
    chat.ended()
    assert chat.text(".assistant .info") == "3 tokens · 40.0 tokens/s"


def test_stopping_by_key_and_going_on(chat: Chat) -> None:
    chat.llm.pieces, chat.llm.seconds = ["word "] * 1000, 0.02
    chat.ask("Count")
    chat.writes(20)
    chat.page.press("Escape")
    chat.ended()
    assert "stopped" in chat.text(".assistant .info")
    chat.llm.pieces, chat.llm.seconds = ["Yes."], 0.0
    chat.ask("Go on")
    chat.page.until("document.querySelectorAll('.assistant').length === 2")
    chat.ended()
    sent = chat.llm.calls[-1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"].startswith("word word")
    assert chat.llm.cancelled == 1


def test_settings_stay(chat: Chat) -> None:
    chat.set(system="Be kind", temperature=0.5, max_tokens=7, api_key="secret")
    chat.ask("First question")
    chat.ended()
    call = chat.llm.calls[-1]
    assert call["messages"][0] == {"role": "system", "content": "Be kind"}
    assert (call["params"].temperature, call["params"].max_tokens) == (0.5, 7)
    assert "secret" not in chat.page.evaluate("JSON.stringify(localStorage)")
    chat.reload()
    fields = "document.getElementById('settings').elements"
    assert chat.page.evaluate(f"{fields}.max_tokens.value") == "7"
    chat.page.evaluate("document.getElementById('toggle-settings').click()")
    chat.shot("settings")


def test_a_message_that_is_too_long_can_be_edited(chat: Chat) -> None:
    chat.llm.error = (400, "the prompt is too long: 9000 tokens, the model reads 4096")
    chat.ask("Very long")
    chat.ended()
    assert "too long for this model" in chat.text(".assistant .error")
    chat.shot("error")
    chat.llm.error = None
    chat.click("Edit the message")
    assert chat.page.evaluate("document.activeElement.value") == "Very long"
    chat.page.type("Short")  # at the end
    chat.click("Send", ".edit")
    chat.page.until("document.querySelector('.user .body').innerText === 'Very longShort'")
    chat.shows("Very longShort", "Hello there!")


def test_a_server_that_is_gone_can_be_asked_again(chat: Chat) -> None:
    chat.page.offline(True)
    chat.ask("Are you there?")
    chat.ended()
    assert "The server does not answer" in chat.text(".assistant .error")
    chat.page.offline(False)
    chat.click("Try again")
    chat.shows("Are you there?", "Hello there!")
    assert chat.count(".branches") == 0  # what failed leaves nothing behind


def test_a_server_that_comes_back_is_found(chat: Chat) -> None:
    """Without a model in the list, the page asks for it again until there is one."""
    page = chat.page
    page.evaluate("window.realFetch = fetch; window.fetch = () => Promise.reject(new TypeError())")
    chat.set(api_key="x")  # asks anew
    page.until("!document.getElementById('notice').hidden")
    assert "does not answer" in chat.text("#notice")
    page.evaluate("window.fetch = window.realFetch")
    page.until("document.getElementById('notice').hidden")
    assert page.evaluate("document.getElementById('model').value") == "m"


def test_a_missing_key_is_asked_for(chat: Chat) -> None:
    with serving(chat.llm, api_keys=("right",)) as url:
        other = chat.tab(url)
        other.page.until("!document.getElementById('notice').hidden")
        other.ask("Hi")
        other.ended()
        assert "asks for an API key" in other.text(".assistant .error")
        other.click("Enter the key", ".error")
        assert other.page.evaluate("document.activeElement.name") == "api_key"
        other.set(api_key="right")
        other.page.until("document.getElementById('notice').hidden")
        other.click("Try again")
        other.shows("Hi", "Hello there!")
