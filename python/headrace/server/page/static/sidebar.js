// The list of conversations: search, rename, delete and undo, export and import.

import { isRunning } from "./data/answers.js";
import { button, element } from "./dom.js";
import { failed, note, openMenu } from "./notes.js";
import { allMessages, changeChat, chats, deletedChats, listen, markDeleted, purge } from "./data/store.js";
import { exportChats, importFile } from "./data/transfer.js";

const SEARCH_AFTER = 150; // ms

// `actions`: address(chat), left(): the conversation that is shown has been deleted.
export class Sidebar {
  #list = document.getElementById("conversations");
  #search = document.getElementById("search");
  #actions;
  #texts = null; // of all conversations, lower case, while there is something to search for
  #running = new Set();
  #renamed = null;
  #turn = 0;
  current = null;

  constructor(actions) {
    this.#actions = actions;
    let timer = 0;
    this.#search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#find().catch(failed), SEARCH_AFTER);
    });
    this.#search.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.#search.value) return;
      event.stopPropagation();
      this.#search.value = "";
      this.#find();
    });
    const more = document.getElementById("more");
    more.addEventListener("click", () => this.#openMore(more).catch(failed));
    const file = document.getElementById("import");
    file.addEventListener("change", () => this.#import(file).catch(failed));
    listen((what) => {
      if (what.ask || what.alive) return;
      if (what.message) this.#note(what.message);
      else this.draw();
    });
  }

  show(chat) {
    this.current = chat;
    return this.draw();
  }

  async draw() {
    const turn = (this.#turn += 1);
    const all = await chats();
    if (turn !== this.#turn) return; // a later call draws
    if (this.#renamed) return;
    const words = this.#search.value.trim().toLowerCase();
    const shown = words ? all.filter((one) => this.#has(one, words)) : all;
    const focused = document.activeElement?.closest?.("#conversations li")?.dataset.chat;
    const items = shown.map((one) => this.#item(one));
    if (!items.length) {
      const text = words ? "Nothing found." : "Conversations stay in this browser.";
      items.push(element("li", { className: "quiet", textContent: text }));
    }
    this.#list.replaceChildren(...items);
    if (focused) this.#list.querySelector(`[data-chat="${CSS.escape(focused)}"] a`)?.focus();
  }

  async #find() {
    if (this.#search.value.trim()) {
      const texts = new Map();
      for (const { chat, content } of await allMessages()) {
        texts.set(chat, `${texts.get(chat) ?? ""}\n${(content ?? "").toLowerCase()}`);
      }
      this.#texts = texts;
    } else {
      this.#texts = null;
    }
    await this.draw();
  }

  #has(chat, words) {
    return chat.title.toLowerCase().includes(words) || Boolean(this.#texts?.get(chat.id)?.includes(words));
  }

  #item(chat) {
    const title = chat.title || "New chat";
    const link = element("a", { href: this.#actions.address(chat.id), title, textContent: title });
    const isCurrent = chat.id === this.current;
    if (isCurrent) link.setAttribute("aria-current", "page");
    const menu = button("⋯", () => this.#openMenu(chat, menu), { name: `More for ${title}` });
    menu.className = "menu-button";
    const item = element("li", { className: isCurrent ? "current" : "" }, link, menu);
    item.dataset.chat = chat.id;
    item.classList.toggle("running", this.#running.has(chat.id));
    return item;
  }

  // A dot at conversations whose answer is being written.
  #note({ id, chat, state }) {
    const is = state === "running" && isRunning(id);
    if (is) this.#running.add(chat);
    else this.#running.delete(chat);
    this.#list.querySelector(`[data-chat="${CSS.escape(chat)}"]`)?.classList.toggle("running", is);
  }

  #openMenu(chat, anchor) {
    openMenu(anchor, [
      ["Rename", () => this.#rename(chat)],
      ["Export", () => exportChats([chat.id]).catch(failed)],
      ["Delete", () => this.#delete([chat.id]).catch(failed)],
    ]);
  }

  async #openMore(anchor) {
    const [there, gone] = [await chats(), await deletedChats()];
    const ids = (list) => list.map((one) => one.id);
    const items = [["Import …", () => document.getElementById("import").click()]];
    if (there.length) {
      items.push(["Export all", () => exportChats(ids(there)).catch(failed)]);
      items.push(["Delete all", () => this.#delete(ids(there)).catch(failed)]);
    }
    if (gone.length) {
      items.push([`Bring back deleted (${gone.length})`, () => markDeleted(ids(gone), 0).catch(failed)]);
      items.push(["Delete these for good", () => purge().catch(failed)]);
    }
    openMenu(anchor, items);
  }

  #rename(chat) {
    const item = this.#list.querySelector(`[data-chat="${CSS.escape(chat.id)}"]`);
    const field = element("input", { value: chat.title, maxLength: 200, "aria-label": "Name" });
    this.#renamed = chat.id;
    const end = (keep) => {
      if (!this.#renamed) return;
      this.#renamed = null;
      const title = field.value.trim();
      if (keep && title) changeChat(chat.id, { title }).catch(failed);
      else this.draw();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) end(true);
      if (event.key === "Escape") {
        event.stopPropagation();
        end(false);
      }
    });
    field.addEventListener("blur", () => end(true));
    item.replaceChildren(field);
    field.focus();
    field.select();
  }

  async #delete(ids) {
    await markDeleted(ids, Date.now());
    if (ids.includes(this.current)) this.#actions.left();
    const text = ids.length > 1 ? `${ids.length} conversations are deleted.` : "The conversation is deleted.";
    note(text, ["Undo", () => markDeleted(ids, 0).catch(failed)]);
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    const count = await importFile(file);
    note(count === 1 ? "One conversation is here now." : `${count} conversations are here now.`);
  }
}
