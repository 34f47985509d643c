// What is shown of a conversation.

import { codeBlock, copyText, element, markdown } from "./markdown.js";

// A message's node with `update(message, running)`, which draws at most once a frame.
export function messageView(message, actions, begins = false) {
  const node = element("article", { className: `message ${message.role}` });
  const body = element("div", { className: "body" });
  const foot = element("div", { className: "foot" });
  if (message.role === "user") {
    body.textContent = message.content;
    foot.append(action("Edit", actions.edit));
    node.append(body, foot);
    return { node, update() {} };
  }
  const thinking = thinkingView();
  const tools = element("div");
  node.append(thinking.node, body, tools, foot);
  let waiting = false;
  let latest = [message, begins];
  const draw = () => {
    waiting = false;
    const [now, running] = latest;
    thinking.update(now.reasoning, running && !now.content);
    body.replaceChildren(markdown(now.content));
    body.classList.toggle("cursor", running && !now.content && !now.reasoning);
    tools.replaceChildren(...(now.tool_calls ?? []).map(toolView));
    foot.replaceChildren(...footParts(now, running, actions));
    actions.drawn();
  };
  const update = (now, running) => {
    latest = [now, running];
    if (running && waiting) return;
    if (!running) return draw();
    waiting = true;
    requestAnimationFrame(draw);
  };
  draw();
  return { node, update };
}

function thinkingView() {
  const text = element("div");
  const title = element("summary");
  const node = element("details", { className: "thinking", hidden: true }, title, text);
  return {
    node,
    update(reasoning, running) {
      node.hidden = !reasoning;
      if (!reasoning) return;
      title.textContent = running ? "Thinking …" : "Thoughts";
      text.replaceChildren(markdown(reasoning));
    },
  };
}

function toolView(call) {
  let shown = call.arguments;
  try {
    shown = JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    // Not complete yet.
  }
  const title = element("summary", { textContent: `Calls ${call.name}` });
  return element("details", { className: "tool", open: true }, title, codeBlock(shown, "json"));
}

function footParts(message, running, actions) {
  const parts = [];
  if (message.error) parts.push(element("span", { className: "error", textContent: message.error }));
  if (message.speed) parts.push(element("span", { textContent: speedText(message) }));
  if (running) return parts;
  const copy = element("button", { type: "button", textContent: "Copy" });
  copy.addEventListener("click", () => copyText(message.content, copy));
  return [...parts, copy, action("Again", actions.again)];
}

function speedText({ speed, tokens, reason }) {
  const ends = { length: " · cut at the most tokens", stopped: " · stopped" }[reason] ?? "";
  return `${tokens} tokens · ${speed.toFixed(1)} tokens/s${ends}`;
}

function action(text, run) {
  const button = element("button", { type: "button", textContent: text });
  button.addEventListener("click", run);
  return button;
}

export function conversationItem(conversation, current, open, remove) {
  const title = conversation.title || "New chat";
  const name = element("button", { type: "button", className: "open", textContent: title, title });
  name.addEventListener("click", open);
  if (current) name.setAttribute("aria-current", "true");
  const away = element("button", { type: "button", className: "delete", textContent: "×" });
  away.setAttribute("aria-label", `Delete ${title}`);
  away.addEventListener("click", remove);
  return element("li", { className: current ? "current" : "" }, name, away);
}

export function emptyNote() {
  return element("p", { className: "empty", textContent: "What would you like to know?" });
}
