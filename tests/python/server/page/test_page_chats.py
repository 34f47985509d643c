"""No conversation is lost: other chats, other tabs, reloads, branches, deleting, files."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from page_chat import Chat

pytest_plugins = ["page_chat"]
WORDS = [f"word{place} " for place in range(60)]
WHOLE = "".join(WORDS).strip()


def current(chat: Chat) -> str:
    address: str = chat.page.evaluate("location.href")
    return address


def test_an_answer_goes_on_while_another_chat_is_shown(chat: Chat) -> None:
    chat.llm.pieces, chat.llm.seconds = WORDS, 0.02
    chat.ask("The first")
    chat.writes(5)
    first = current(chat)
    chat.click("New chat")
    chat.page.until("document.querySelectorAll('.message').length === 0")
    assert chat.count("#conversations li.running") == 1
    chat.llm.pieces, chat.llm.seconds = ["Second answer"], 0.0
    chat.ask("The second")
    chat.shows("The second", "Second answer")
    chat.lists("The second", "The first")
    chat.page.evaluate(f"location.href = {first!r}")
    chat.page.until("document.title.startsWith('The first')")
    chat.shows("The first", WHOLE)
    assert chat.llm.cancelled == 0
    chat.page.evaluate("history.back()")
    chat.shows("The second", "Second answer")


def test_tabs_keep_each_others_conversations(chat: Chat) -> None:
    other = chat.tab()
    chat.ask("Of one tab")
    chat.ended()
    other.lists("Of one tab")
    other.ask("Of the other")
    other.ended()
    chat.lists("Of the other", "Of one tab")
    both = chat.tab(current(chat))
    both.shows("Of one tab", "Hello there!")
    chat.llm.pieces, chat.llm.seconds = WORDS, 0.02
    both.ask("More")
    chat.page.until("document.querySelectorAll('.assistant').length === 2")  # as it is written
    chat.shows("Of one tab", "Hello there!", "More", WHOLE)
    other.reload()
    other.lists("Of one tab", "Of the other")
    chat.menu(1, "Delete")
    other.lists("Of one tab")
    other.page.until("document.querySelectorAll('.message').length === 0")


def test_an_answer_goes_on_after_a_reload(chat: Chat) -> None:
    chat.llm.pieces, chat.llm.seconds = WORDS, 0.02
    chat.ask("Count")
    chat.writes(60)
    chat.reload()
    chat.ended()
    question, partial = chat.texts(".message > .body")
    assert question == "Count"
    assert WHOLE.startswith(partial)
    assert len(partial) > 20
    assert "interrupted" in chat.text(".assistant .info")
    chat.shot("interrupted")
    chat.llm.pieces, chat.llm.seconds = [" and so on"], 0.0
    chat.click("Continue")
    chat.shows("Count", f"{partial} and so on")
    chat.click("Again")
    chat.shows("Count", "and so on")
    assert chat.text(".assistant .branches") == "‹2/2›"


def test_a_question_is_there_after_a_reload_at_once(chat: Chat) -> None:
    chat.llm.held = True
    chat.ask("Was it stored?")
    chat.page.until("document.querySelectorAll('.message').length === 2")
    chat.reload()
    chat.page.until("document.querySelector('.user .body').innerText === 'Was it stored?'")
    chat.llm.held = False
    chat.click("Again")
    chat.page.until("document.querySelector('.assistant .body').innerText === 'Hello there!'")


def test_what_is_not_sent_yet_stays(chat: Chat) -> None:
    chat.page.evaluate("document.getElementById('prompt').focus()")
    chat.page.type("Not sent")
    chat.reload()
    assert chat.page.evaluate("document.getElementById('prompt').value") == "Not sent"


def test_editing_and_asking_again_branch(chat: Chat) -> None:
    for question, answer in (("One", "First"), ("Two", "Second")):
        chat.llm.pieces = [answer]
        chat.ask(question)
        chat.page.until(f"document.body.innerText.includes({answer!r})")
        chat.ended()
    chat.llm.pieces = ["Other"]
    chat.click("Edit", ".user:nth-child(1)")
    chat.page.type("!")
    chat.page.press("Enter")
    chat.shows("One!", "Other")
    sent = chat.llm.calls[-1]["messages"]
    assert [(one["role"], one["content"]) for one in sent] == [("user", "One!")]
    chat.llm.pieces = ["Another"]
    chat.click("Again")
    chat.shows("One!", "Another")
    chat.shot("branches")
    chat.click("‹")
    chat.shows("One!", "Other")
    chat.click("‹", ".user:nth-child(1)")
    chat.shows("One", "First", "Two", "Second")
    chat.reload()
    chat.shows("One", "First", "Two", "Second")
    chat.click("›", ".user:nth-child(1)")
    chat.page.until("document.querySelector('.user .body').innerText === 'One!'")


def test_deleting_can_be_undone(chat: Chat) -> None:
    for question in ("One", "Two", "Three"):
        chat.click("New chat")
        chat.page.until("document.querySelectorAll('.message').length === 0")
        chat.ask(question)
        chat.shows(question, "Hello there!")
    chat.menu(1, "Delete")
    chat.lists("Three", "One")
    chat.shot("deleted")
    chat.click("Undo", "#note")
    chat.lists("Three", "Two", "One")
    chat.more("Delete all")
    chat.page.until("document.querySelectorAll('#conversations a').length === 0")
    chat.page.until("document.querySelectorAll('.message').length === 0")
    chat.page.go(chat.url)
    chat.ready()
    chat.more("Bring back deleted (3)")
    chat.lists("Three", "Two", "One")
    chat.menu(0, "Delete")
    chat.lists("Two", "One")
    chat.more("Delete these for good")
    chat.reload()
    chat.lists("Two", "One")
    chat.page.evaluate("document.getElementById('more').click()")
    assert "Bring back" not in chat.text(".menu")


def test_search_and_names(chat: Chat) -> None:
    chat.llm.pieces = ["A turbine is no waterwheel."]
    chat.ask("About wheels")
    chat.ended()
    chat.click("New chat")
    chat.llm.pieces = ["Ships float."]
    chat.ask("About ships")
    chat.ended()
    chat.menu(0, "Rename")
    chat.page.type("Ämter & <b>Boote</b>")
    chat.page.press("Enter")
    chat.lists("Ämter & <b>Boote</b>", "About wheels")
    search = "document.getElementById('search')"
    for words, found in (("TURBINE", ["About wheels"]), ("ämter", ["Ämter & <b>Boote</b>"])):
        chat.page.evaluate(f"{search}.value = ''; {search}.focus()")
        chat.page.type(words)
        chat.lists(*found)
    chat.page.evaluate(f"{search}.select()")
    chat.page.type("nowhere")
    chat.page.until("document.getElementById('conversations').innerText === 'Nothing found.'")
    chat.page.press("Escape")
    chat.lists("Ämter & <b>Boote</b>", "About wheels")
    chat.reload()
    chat.lists("Ämter & <b>Boote</b>", "About wheels")


def test_an_address_for_each_conversation(chat: Chat) -> None:
    chat.ask("Addressed")
    chat.ended()
    address = current(chat)
    assert "#/chat/" in address
    other = chat.tab(address)
    other.shows("Addressed", "Hello there!")
    chat.page.evaluate("location.hash = '#/chat/unknown'")
    chat.page.until("document.getElementById('note').innerText.includes('no such conversation')")
    chat.ask("New after all")
    chat.lists("New after all", "Addressed")


def test_export_and_import(chat: Chat) -> None:
    chat.ask("Kept in a file")
    chat.ended()
    chat.click("Again")
    chat.page.until("document.querySelector('.assistant .branches') !== null")
    chat.ended()
    chat.menu(0, "Export")
    file = chat.folder / "Kept_in_a_file.json"
    chat.page.until("document.readyState === 'complete'")
    wait_for(file)
    assert len(json.loads(file.read_text())["messages"]) == 3
    chat.menu(0, "Delete")
    chat.more("Delete these for good")
    chat.reload()
    assert chat.titles() == []
    broken = chat.folder / "broken.json"
    broken.write_text('{"form": "headrace conversations 1", "chats": [{"id": 5}], "messages": []}')
    chat.page.choose("#import", broken)
    chat.page.until("document.getElementById('note').innerText.includes('no conversations')")
    for _ in range(2):  # merged by id: once more changes nothing
        chat.page.choose("#import", file)
        chat.lists("Kept in a file")
        chat.page.until("document.getElementById('note').innerText.includes('is here now')")
    chat.page.evaluate("document.querySelector('#conversations a').click()")
    chat.shows("Kept in a file", "Hello there!")
    assert chat.text(".assistant .branches") == "‹2/2›"


def wait_for(file: Path) -> None:
    for _ in range(500):
        if file.exists() and file.stat().st_size:
            return
        time.sleep(0.02)
    raise AssertionError(f"{file} has not come: {sorted(file.parent.iterdir())}")


def test_going_on_after_the_limit(chat: Chat) -> None:
    chat.llm.pieces, chat.llm.ends["finish_reason"] = ["Cut here,"], "length"
    chat.ask("Tell me")
    chat.ended()
    assert "cut at the most tokens" in chat.text(".assistant .info")
    chat.llm.pieces, chat.llm.ends["finish_reason"] = [" and the rest."], "stop"
    chat.click("Continue")
    chat.shows("Tell me", "Cut here, and the rest.")
    assert chat.llm.calls[-1]["messages"][:2] == [
        {"role": "user", "content": "Tell me"},
        {"role": "assistant", "content": "Cut here,"},
    ]
    assert chat.text(".assistant .info").startswith("2 tokens")
    assert chat.count(".branches") == 0


def test_conversations_of_earlier_versions_are_taken_over(chat: Chat) -> None:
    old: dict[str, Any] = {"id": "1-2", "title": "Old", "messages": []}
    old["messages"] = [
        {"role": "user", "content": "Old question"},
        {"role": "assistant", "content": "Old answer", "reasoning": "", "tool_calls": []},
    ]
    text = json.dumps(json.dumps([old]))
    chat.page.evaluate(f"localStorage.setItem('headrace.conversations', {text})")
    chat.reload()
    chat.lists("Old")
    chat.page.evaluate("document.querySelector('#conversations a').click()")
    chat.shows("Old question", "Old answer")
