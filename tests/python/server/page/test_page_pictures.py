"""Pictures on the chat page: chosen, dropped, pasted, shown, sent, and kept."""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from serving import PlayedLLM, serving

if TYPE_CHECKING:
    from page_chat import Chat

pytest_plugins = ["page_chat"]


def png(width: int, height: int, color: tuple[int, int, int]) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(color) * width) * height
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def give(chat: Chat, kind: str, data: bytes) -> None:
    """Drops or pastes a picture."""
    encoded = base64.b64encode(data).decode()
    chat.page.evaluate(
        f"""(() => {{
          const bytes = Uint8Array.from(atob("{encoded}"), (one) => one.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], "{kind}.png", {{type: "image/png"}}));
          const field = document.getElementById("prompt");
          field.dispatchEvent("{kind}" === "paste"
            ? new ClipboardEvent("paste", {{clipboardData: transfer, bubbles: true}})
            : new DragEvent("drop", {{dataTransfer: transfer, bubbles: true, cancelable: true}}));
        }})()"""
    )


def sizes(parts: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Of the pictures among the parts of a message, which are PNGs."""
    found = []
    for part in parts:
        if part["type"] == "image_url":
            head, data = part["image_url"]["url"].split(",")
            assert head == "data:image/png;base64"
            found.append(struct.unpack(">II", base64.b64decode(data)[16:24]))
    return found


def test_pictures_are_chosen_dropped_and_pasted(chat: Chat) -> None:
    chat.page.until("!document.getElementById('attach').hidden")
    file = chat.folder / "chosen.png"
    file.write_bytes(png(300, 120, (40, 120, 150)))
    chat.page.choose("#file", file)
    chat.page.until("document.querySelectorAll('#tray img').length === 1")
    give(chat, "drop", png(40, 30, (200, 90, 30)))
    chat.page.until("document.querySelectorAll('#tray img').length === 2")
    give(chat, "paste", png(4100, 20, (90, 160, 60)))
    chat.page.until("document.querySelectorAll('#tray img').length === 3")
    chat.shot("tray")
    chat.page.evaluate("document.querySelector('[aria-label=\"Leave out drop.png\"]').click()")
    chat.ask("What is this?")
    chat.shows("What is this?", "Hello there!")
    parts = chat.llm.calls[-1]["messages"][0]["content"]
    assert sizes(parts) == [(300, 120), (2048, 10)]  # the wide one is made smaller
    assert parts[-1] == {"type": "text", "text": "What is this?"}
    shown = "[...document.querySelectorAll('.user img')].map(one => [one.alt, one.naturalWidth])"
    chat.page.until("document.querySelectorAll('.user img').length === 2")
    chat.page.until(f"{shown}[1][1] > 0")
    chat.shot("pictures")
    chat.reload()
    chat.page.until(f'JSON.stringify({shown}) === \'[["chosen.png",300],["paste.png",2048]]\'')
    chat.ask("And now?")
    chat.page.until("document.querySelectorAll('.assistant').length === 2")
    chat.ended()
    assert sizes(chat.llm.calls[-1]["messages"][0]["content"]) == [(300, 120), (2048, 10)]


def test_pictures_stay_with_what_is_edited_and_exported(chat: Chat) -> None:
    chat.page.until("!document.getElementById('attach').hidden")
    give(chat, "drop", png(40, 30, (200, 90, 30)))
    chat.page.until("document.querySelectorAll('#tray img').length === 1")
    chat.page.evaluate("document.getElementById('send').click()")
    chat.page.until("document.querySelector('.assistant .body')?.innerText === 'Hello there!'")
    chat.lists("Picture")
    chat.ended()
    chat.click("Edit", ".user")
    chat.page.type("With words")
    chat.click("Send", ".edit")
    chat.shows("With words", "Hello there!")
    assert sizes(chat.llm.calls[-1]["messages"][0]["content"]) == [(40, 30)]
    code = """import('/page/data/store.js').then(async ({allMessages}) =>
        (await allMessages()).filter(one => one.role === 'user').map(one => one.pictures.length))"""
    assert chat.page.evaluate(code) == [1, 1]
    chat.menu(0, "Export")
    file = chat.folder / "Picture.json"
    while not file.exists() or not file.stat().st_size:
        chat.page.until("true")
    messages = json.loads(file.read_text())["messages"]
    urls = [one["pictures"][0]["url"] for one in messages if one.get("pictures")]
    assert len(urls) == 2
    assert all(url.startswith("data:image/png;base64,") for url in urls)


def test_what_is_no_picture_is_refused_in_words(chat: Chat) -> None:
    chat.page.until("!document.getElementById('attach').hidden")
    give(chat, "drop", b"no picture at all")
    chat.page.until("document.getElementById('note').innerText.includes('drop.png is no picture')")
    assert chat.count("#tray img") == 0


def test_a_model_that_reads_text_only(chat: Chat) -> None:
    with serving(PlayedLLM()) as url:
        other = chat.tab(url)
        assert other.page.evaluate("document.getElementById('attach').hidden")
        give(other, "paste", png(4, 4, (1, 2, 3)))
        other.page.until("document.getElementById('note').innerText.includes('reads text only')")


@pytest.mark.parametrize("vision", [False, True])
def test_the_list_of_models_tells_what_they_can_do(vision: bool) -> None:
    with serving(PlayedLLM(vision=vision)) as url:
        (card,) = httpx.get(f"{url}/v1/models").json()["data"]
    assert card["capabilities"] == {"completion_chat": True, "vision": vision}
    assert {"id", "object", "created", "owned_by"} <= card.keys()
