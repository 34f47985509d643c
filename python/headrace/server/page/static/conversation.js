// The conversation that is shown: one branch of its messages.

import { answer, ask, goOn, isAlive, isRunning, runOf, whileWriting } from "./data/answers.js";
import { element } from "./dom.js";
import { MessageView } from "./message.js";
import { changeChat, chats, listen, messagesOf, putMessage } from "./data/store.js";
import { newestLeaf, pathTo, siblings } from "./data/tree.js";

// `actions`: enterKey(), newChat(), failed(error), changed().
export class Conversation {
  #box;
  #actions;
  #messages = new Map();
  #views = new Map(); // by message id
  #asked = new Set(); // ids of messages that may be another tab's to write
  #follows = true; // the reader is at the end, and stays there
  #sizes = new ResizeObserver(() => this.#scroll()); // pictures that come, parts that come in sight
  chat = null; // its id
  leaf = null;

  constructor(box, actions) {
    this.#box = box;
    this.#actions = actions;
    box.addEventListener("scroll", () => {
      this.#follows = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    });
    listen((what) => what.chat === this.chat && this.#hear(what));
    whileWriting((message) => {
      if (message.chat === this.chat) this.#views.get(message.id)?.update(message, this.#place(message));
    });
  }

  // Shows a conversation; whether there is such a one.
  async open(chat) {
    this.chat = chat;
    this.leaf = null;
    this.#messages = new Map();
    this.#views = new Map();
    this.#box.replaceChildren();
    this.#follows = true;
    const [messages, list] = [await messagesOf(chat), await chats()];
    if (this.chat !== chat) return true; // another one was opened meanwhile
    this.#messages = messages;
    const run = runOf(chat)?.message;
    if (run) messages.set(run.id, run);
    const known = list.find((one) => one.id === chat);
    const leaf = known?.leaf;
    this.leaf = messages.has(leaf) ? newestLeaf(messages, messages.get(leaf)) : newestLeaf(messages, null);
    this.#draw();
    return Boolean(known);
  }

  async send(text, pictures) {
    this.#follows = true;
    await ask(this.chat, this.leaf, text, pictures);
  }

  // The branch that is shown goes on with what is written to its last message.
  #hear({ message, removed }) {
    if (removed) this.#messages.delete(removed);
    if (removed === this.leaf && removed) this.leaf = newestLeaf(this.#messages, null);
    if (message) {
      const isNew = !this.#messages.has(message.id);
      this.#messages.set(message.id, runOf(this.chat, message.id)?.message ?? message);
      if (isNew && message.parent === this.leaf) this.leaf = message.id;
    }
    if (message || removed) this.#draw();
  }

  #place(message) {
    const all = siblings(this.#messages, message);
    const at = all.findIndex((one) => one.id === message.id);
    return { at, of: all.length, isRunning: message.state === "running" };
  }

  // Views of messages that stay are kept, with what is selected in them.
  #draw() {
    const path = pathTo(this.#messages, this.leaf);
    const views = new Map();
    path.forEach((message, at) => {
      const view = this.#views.get(message.id) ?? new MessageView(message, this.#actionsOf(message.id));
      views.set(message.id, view);
      this.#sizes.observe(view.node);
      if (this.#box.children[at] !== view.node) {
        this.#box.insertBefore(view.node, this.#box.children[at] ?? null);
      }
      view.update(message, this.#place(message));
      if (message.state === "running" && !isRunning(message.id)) this.#askWhether(message);
    });
    this.#views = views;
    while (this.#box.children.length > path.length) this.#box.lastElementChild.remove();
    if (!path.length) this.#box.append(emptyNote());
    this.#scroll();
    this.#actions.changed();
  }

  #scroll() {
    if (this.#follows) this.#box.scrollTop = this.#box.scrollHeight;
  }

  // An answer that no tab writes any more has been interrupted.
  async #askWhether(message) {
    if (this.#asked.has(message.id)) return;
    this.#asked.add(message.id);
    const alive = await isAlive(message.id);
    const now = this.#messages.get(message.id);
    if (!alive && now?.state === "running") await putMessage({ ...now, state: "broken" });
    else setTimeout(() => this.#asked.delete(message.id), 3000);
  }

  #actionsOf(id) {
    const get = () => this.#messages.get(id);
    const run = (work) => work().catch(this.#actions.failed);
    return {
      drawn: () => this.#scroll(),
      edit: (text) => run(() => this.#edit(get(), text)),
      again: () => run(() => this.#again(get())),
      goOn: () => run(() => this.#goOn(get())),
      turn: (by) => run(() => this.#turn(get(), by)),
      editQuestion: () => this.#views.get(get().parent)?.edit(),
      enterKey: this.#actions.enterKey,
      newChat: this.#actions.newChat,
    };
  }

  async #edit(message, text) {
    if (!text && !message.pictures?.length) return;
    this.#follows = true;
    this.leaf = message.parent;
    await ask(this.chat, message.parent, text, message.pictures ?? []);
  }

  async #again(message) {
    this.#follows = true;
    this.leaf = message.parent;
    await answer(this.chat, message.parent);
  }

  async #goOn(message) {
    this.#follows = true;
    await goOn(message);
  }

  async #turn(message, by) {
    const all = siblings(this.#messages, message);
    const next = all[all.findIndex((one) => one.id === message.id) + by];
    this.leaf = newestLeaf(this.#messages, next);
    this.#draw();
    await changeChat(this.chat, { leaf: this.leaf });
  }
}

function emptyNote() {
  return element("p", { className: "empty", textContent: "What would you like to know?" });
}
