"""The chat page before a played model: one browser and one server for all tests of a run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chromium import CHROMIUM, Browser, Page

from serving import PlayedLLM, serving


@dataclass
class Stage:
    """tab: the one that tests share; a new one would take longer than many a test."""

    browser: Browser
    profile: str
    tab: Page
    url: str
    llm: PlayedLLM


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    folder = tmp_path_factory.mktemp("chromium")
    llm = PlayedLLM(vision=True)
    with Browser(folder / "profile") as browser, serving(llm) as url:
        profile = browser.profile()
        yield Stage(browser, profile, browser.open(url, profile), url, llm)


@pytest.fixture
def chat(stage: Stage, tmp_path: Path) -> Iterator[Chat]:
    stage.llm.__init__(vision=True)  # type: ignore[misc]
    stage.browser.download_to(stage.profile, tmp_path)
    stage.tab.forget(stage.url)
    chat = Chat(stage, stage.tab, tmp_path, stage.url)
    yield chat
    stage.llm.held = False
    for tab in chat.tabs:
        tab.page.close()


class Chat:
    """A tab with the page. Further tabs of the same browser's user: `tab()`."""

    def __init__(self, stage: Stage, page: Page, folder: Path, url: str) -> None:
        self.stage, self.llm, self.page = stage, stage.llm, page
        self.folder, self.url = folder, url
        self.tabs: list[Chat] = []
        self.page.go(url)
        self.ready()

    def tab(self, url: str = "") -> Chat:
        page = self.stage.browser.open("about:blank", self.stage.profile)
        self.tabs.append(Chat(self.stage, page, self.folder, url or self.url))
        return self.tabs[-1]

    def ready(self) -> None:
        self.page.until("document.querySelector('#conversations li') !== null")
        self.page.until("document.querySelector('#model').options.length > 0")

    def reload(self) -> None:
        self.page.reload()
        self.ready()

    def ask(self, text: str) -> None:
        self.page.evaluate("document.getElementById('prompt').focus()")
        self.page.type(text)
        self.page.press("Enter")

    def click(self, text: str, within: str = "body") -> None:
        """The last button below `within` that says `text`."""
        buttons = f"[...document.querySelectorAll({json.dumps(within + ' button')})]"
        found = f"{buttons}.filter(one => one.textContent === {json.dumps(text)} && "
        found += "one.checkVisibility()).at(-1)"
        self.page.until(f"Boolean({found})")
        self.page.evaluate(f"{found}.click()")

    def menu(self, place: int, text: str) -> None:
        """Of the conversation that stands at `place` in the list."""
        script = f"document.querySelectorAll('#conversations .menu-button')[{place}].click()"
        self.page.evaluate(script)
        self.click(text, ".menu")

    def more(self, text: str) -> None:
        self.page.evaluate("document.getElementById('more').click()")
        self.click(text, ".menu")

    def count(self, selector: str) -> int:
        count: int = self.page.evaluate(f"document.querySelectorAll({selector!r}).length")
        return count

    def text(self, selector: str) -> str:
        text: str = self.page.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")
        return text

    def texts(self, selector: str) -> list[str]:
        code = f"[...document.querySelectorAll({selector!r})].map(one => one.innerText)"
        found: list[str] = self.page.evaluate(code)
        return found

    def titles(self) -> list[str]:
        return self.texts("#conversations a")

    def shows(self, *bodies: str) -> None:
        """Waits until these are the messages, none of them being written."""
        shown = "[...document.querySelectorAll('.message > .body')].map(one => one.innerText)"
        wanted = json.dumps(json.dumps(list(bodies)), ensure_ascii=False)
        self.ended()
        self.page.until(f"JSON.stringify({shown}) === JSON.stringify(JSON.parse({wanted}))")

    def lists(self, *titles: str) -> None:
        shown = "[...document.querySelectorAll('#conversations a')].map(one => one.textContent)"
        wanted = json.dumps(list(titles), ensure_ascii=False)
        self.page.until(f"JSON.stringify({shown}) === JSON.stringify({wanted})")

    def writes(self, characters: int) -> None:
        """Waits until as much of an answer is there."""
        body = "document.querySelector('.assistant:last-child .body')?.innerText.length"
        self.page.until(f"{body} >= {characters}")

    def ended(self) -> None:
        """Waits until the last answer has its buttons."""
        foot = "document.querySelector('.assistant:last-child .foot button')"
        self.page.until(f"{foot} !== null && document.getElementById('stop').hidden")

    def set(self, **values: Any) -> None:
        """Settings, as if typed."""
        self.page.evaluate(
            f"""(() => {{
              const form = document.getElementById("settings");
              for (const [name, value] of Object.entries({json.dumps(values)})) {{
                form.elements[name].value = value;
                form.elements[name].dispatchEvent(new Event("change", {{bubbles: true}}));
              }}
            }})()"""
        )

    def shot(self, name: str) -> None:
        """Kept where HEADRACE_SCREENSHOTS says."""
        if folder := os.environ.get("HEADRACE_SCREENSHOTS"):
            self.page.screenshot(Path(folder) / f"{name}.png")
