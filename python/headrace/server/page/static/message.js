// A message in the conversation.

import { button, copyText, element } from "./dom.js";
import { CodeLines } from "./markdown/code_lines.js";
import { MarkdownView } from "./markdown/draw.js";
import { thumbnail } from "./data/pictures.js";

// `actions`: what its buttons do: edit(text), again(), goOn(), turn(by), enterKey().
export class MessageView {
  #actions;
  #parts;
  #foot = element("div", { className: "foot" });
  #footKey = "";
  #wait = 0;
  #latest;

  constructor(message, actions) {
    this.#actions = actions;
    const isUser = message.role === "user";
    const name = isUser ? "You" : "Answer";
    this.node = element("article", { className: `message ${message.role}`, "aria-label": name });
    this.#parts = isUser ? new Question() : new Answer();
    this.node.append(...this.#parts.nodes, this.#foot);
  }

  // place: {at, of, isRunning}: which of the branches it is of, and whether it is being written.
  update(message, place) {
    this.#latest = [message, place];
    if (!place.isRunning) this.#draw();
    else this.#wait ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    cancelAnimationFrame(this.#wait);
    this.#wait = 0;
    const [message, place] = this.#latest;
    this.node.setAttribute("aria-busy", String(place.isRunning));
    this.#parts.update(message, place.isRunning);
    this.#drawFoot(message, place);
    this.#actions.drawn();
  }

  // Drawn anew only where it says something new: a button keeps its focus.
  #drawFoot(message, place) {
    const { state, error, speed } = message;
    const tokens = place.isRunning ? message.tokens : 0;
    const key = JSON.stringify([state, error, speed, tokens, place, Boolean(message.content)]);
    if (key === this.#footKey) return;
    this.#footKey = key;
    this.#foot.replaceChildren(...footParts(message, place, this.#actions, () => this.#edit()));
  }

  // The question becomes a form. What it was stays, as a branch.
  #edit() {
    const [message] = this.#latest;
    const text = element("textarea", { value: message.content, rows: 3, "aria-label": "Your message" });
    const form = element("form", { className: "edit" }, text);
    const close = () => {
      form.replaceWith(this.#parts.body);
      this.#foot.hidden = false;
    };
    const send = () => {
      close();
      this.#actions.edit(text.value.trim());
    };
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      }
    });
    const ways = [button("Send", send, { className: "main" }), button("Cancel", close)];
    form.append(element("div", { className: "row" }, ...ways));
    this.#parts.body.replaceWith(form);
    this.#foot.hidden = true;
    text.style.height = `${Math.min(text.scrollHeight + 4, 400)}px`;
    text.focus();
  }

  edit() {
    this.#edit();
  }
}

class Question {
  body = element("div", { className: "body" });
  #pictures = element("div", { className: "pictures" });
  #shown = null;
  nodes = [this.#pictures, this.body];

  update({ content, pictures }) {
    if (this.body.textContent !== content) this.body.textContent = content;
    this.body.hidden = !content;
    if (!this.#shown) {
      this.#shown = pictures ?? [];
      this.#pictures.append(...this.#shown.map((one) => thumbnail(one, "picture")));
      this.#pictures.hidden = !this.#shown.length;
    }
  }
}

class Answer {
  body = element("div", { className: "body" });
  #words = new MarkdownView(this.body);
  #title = element("summary");
  #thoughts = element("div");
  #thinking = element("details", { className: "thinking", hidden: true }, this.#title, this.#thoughts);
  #thoughtWords = new MarkdownView(this.#thoughts);
  #tools = element("div");
  #calls = [];
  nodes = [this.#thinking, this.body, this.#tools];

  update(message, isRunning) {
    const { content, reasoning, tool_calls: calls = [] } = message;
    const isThinking = isRunning && !content;
    this.#thinking.hidden = !reasoning;
    const title = isThinking ? "Thinking …" : "Thoughts";
    if (this.#title.textContent !== title) this.#title.textContent = title;
    this.#thoughtWords.update(reasoning ?? "", !isThinking);
    this.#words.update(content ?? "", !isRunning);
    this.body.classList.toggle("waits", isRunning && !content && !reasoning);
    calls.forEach((call, at) => {
      this.#calls[at] ??= new ToolCall(this.#tools);
      this.#calls[at].update(call);
    });
  }
}

class ToolCall {
  #title = element("summary");
  #lines;
  #text = null;

  constructor(parent) {
    const code = element("code");
    this.#lines = new CodeLines(code, "json");
    parent.append(
      element("details", { className: "tool", open: true }, this.#title, element("pre", { tabIndex: 0 }, code)),
    );
  }

  update(call) {
    this.#title.textContent = `Calls ${call.name}`;
    if (call.arguments === this.#text) return;
    this.#text = call.arguments;
    let shown = call.arguments;
    try {
      shown = JSON.stringify(JSON.parse(call.arguments), null, 2);
    } catch {
      // Not complete yet.
    }
    this.#lines.update({ type: "fence", lines: shown.split("\n") });
  }
}

// ---- below a message

const ENDS = {
  length: "cut at the most tokens",
  stopped: "stopped",
  broken: "interrupted",
};

function footParts(message, place, actions, edit) {
  const parts = [];
  if (message.error) parts.push(errorNote(message, actions));
  const info = infoText(message, place);
  if (info) parts.push(element("span", { className: "info", textContent: info }));
  if (place.of > 1) parts.push(branches(place, actions));
  if (place.isRunning) return parts;
  if (message.content) parts.push(copyButton(message.content));
  if (message.role === "user") return [...parts, button("Edit", edit)];
  if (!message.error) {
    parts.push(button("Again", actions.again, { title: "Ask for another answer; this one stays" }));
  }
  const canGoOn = message.content && ["length", "stopped", "broken", "failed"].includes(message.state);
  if (canGoOn) parts.push(button("Continue", actions.goOn, { className: "main" }));
  return parts;
}

function infoText(message, place) {
  if (message.role === "user") return "";
  const parts = [];
  if (message.tokens) parts.push(message.tokens === 1 ? "1 token" : `${message.tokens} tokens`);
  if (message.speed && !place.isRunning) parts.push(`${message.speed.toFixed(1)} tokens/s`);
  if (ENDS[message.state]) parts.push(ENDS[message.state]);
  return parts.join(" · ");
}

function copyButton(text) {
  const node = button("Copy", () => copyText(text, node));
  return node;
}

function branches({ at, of }, actions) {
  const before = button("‹", () => actions.turn(-1), { name: "Earlier version", disabled: at === 0 });
  const after = button("›", () => actions.turn(1), { name: "Later version", disabled: at === of - 1 });
  return element("span", { className: "branches" }, before, `${at + 1}/${of}`, after);
}

// What went wrong, and what may help.
function errorNote({ error }, actions) {
  const ways = [];
  if (error.kind === "key") ways.push(button("Enter the key", actions.enterKey, { className: "main" }));
  if (error.kind === "long") ways.push(button("Edit the message", actions.editQuestion, { className: "main" }));
  if (error.kind !== "long") ways.push(button("Try again", actions.again, { className: "main" }));
  if (error.kind === "refused") ways.push(button("Edit the message", actions.editQuestion));
  if (error.kind === "long") ways.push(button("New chat", actions.newChat));
  const words = element("p", { textContent: error.text });
  const row = element("div", { className: "row" }, ...ways);
  return element("div", { className: "error", role: "alert" }, words, row);
}
