// The page: its state, and what buttons and keys do.

import { listModels, streamChat } from "./api.js";
import { element } from "./markdown.js";
import {
  loadConversations,
  loadSettings,
  newConversation,
  saveConversations,
  saveSettings,
} from "./store.js";
import { conversationItem, emptyNote, messageView } from "./view.js";

const $ = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const PHONE = matchMedia("(max-width: 720px)");

let conversations = loadConversations();
let current = newConversation();
let settings = loadSettings();
let running = null; // the AbortController of the answer that is being written

// ---- drawing

function drawList() {
  $("conversations").replaceChildren(
    ...conversations.map((one) =>
      conversationItem(one, one.id === current.id, () => open(one), () => remove(one)),
    ),
  );
}

function drawMessages() {
  const views = current.messages.map((message, at) => show(message, at).node);
  $("messages").replaceChildren(...(views.length ? views : [emptyNote()]));
  scrollDown();
}

function show(message, at, begins) {
  const actions = {
    edit: () => edit(at),
    again: () => answer(at),
    drawn: () => followed && scrollDown(),
  };
  return messageView(message, actions, begins);
}

let followed = true; // the reader is at the end, and stays there

function scrollDown() {
  $("messages").scrollTop = $("messages").scrollHeight;
}

// ---- conversations

function open(conversation) {
  stop();
  current = conversation;
  toggleSidebar(false);
  drawList();
  drawMessages();
  $("prompt").focus();
}

function remove(conversation) {
  conversations = conversations.filter((one) => one !== conversation);
  saveConversations(conversations);
  if (conversation === current) open(newConversation());
  else drawList();
}

function keep() {
  conversations = [current, ...conversations.filter((one) => one !== current)];
  saveConversations(conversations);
  drawList();
}

// ---- asking

function send() {
  const text = $("prompt").value.trim();
  if (!text || running) return;
  current.messages.push({ role: "user", content: text });
  current.title ||= text.replace(/\s+/g, " ").slice(0, 60);
  $("prompt").value = "";
  fit();
  answer(current.messages.length);
}

function edit(at) {
  stop();
  $("prompt").value = current.messages[at].content;
  current.messages.length = at;
  keep();
  drawMessages();
  fit();
  $("prompt").focus();
}

// Writes message number `at`; what comes after it goes.
async function answer(at) {
  stop();
  const conversation = current;
  conversation.messages.length = at;
  const message = { role: "assistant", content: "", reasoning: "", tool_calls: [] };
  const asked = requestBody(conversation.messages);
  followed = true;
  drawMessages();
  conversation.messages.push(message);
  const view = show(message, at, true);
  $("messages").append(view.node);
  scrollDown();
  const controller = (running = new AbortController());
  drawButtons();
  try {
    const body = { model: $("model").value, ...(await asked) };
    await write(body, message, controller.signal, () => {
      if (conversation === current) view.update(message, true);
    });
  } catch (error) {
    if (controller.signal.aborted) message.reason = "stopped";
    else message.error = error.message;
  }
  if (running === controller) running = null;
  view.update(message, false);
  drawButtons();
  if (conversation === current || conversations.includes(conversation)) keepOf(conversation);
}

function keepOf(conversation) {
  if (conversation === current) keep();
  else saveConversations(conversations);
}

async function write(body, message, signal, changed) {
  let first = 0;
  let pieces = 0;
  for await (const piece of streamChat(body, settings.api_key, signal)) {
    const choice = piece.choices[0];
    if (choice) add(message, choice.delta);
    if (choice?.finish_reason) message.reason = choice.finish_reason;
    const now = performance.now();
    first ||= now;
    pieces += 1;
    message.tokens = piece.usage?.completion_tokens ?? pieces;
    // The first token's time is the prompt's.
    if (now > first) message.speed = ((message.tokens - 1) * 1000) / (now - first);
    changed();
  }
}

function add(message, delta) {
  message.content += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? "";
  for (const part of delta.tool_calls ?? []) {
    const call = (message.tool_calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" });
    call.id ||= part.id ?? "";
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
}

async function requestBody(messages) {
  const body = { messages: messages.filter((one) => !one.error).map(sent) };
  if (settings.system) body.messages.unshift({ role: "system", content: settings.system });
  for (const name of NUMBERS) {
    if (settings[name]) body[name] = Number(settings[name]);
  }
  if (settings.tools?.trim()) {
    try {
      body.tools = JSON.parse(settings.tools);
    } catch (error) {
      throw new Error(`The tools in the settings are not JSON: ${error.message}`);
    }
  }
  body.stream_options = { include_usage: true, continuous_usage_stats: true };
  return body;
}

function sent({ role, content, tool_calls: calls }) {
  if (!calls?.length) return { role, content };
  const written = calls.map(({ id, name, arguments: text }) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  }));
  return { role, content, tool_calls: written };
}

function stop() {
  running?.abort();
  running = null;
  drawButtons();
}

// ---- the frame

function drawButtons() {
  $("stop").hidden = !running;
  $("send").hidden = Boolean(running);
}

function fit() {
  const prompt = $("prompt");
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

function toggleSidebar(wanted) {
  document.body.classList.toggle("sidebar-open", wanted);
  $("toggle-sidebar").setAttribute("aria-expanded", String(wanted));
}

function toggleSettings() {
  const form = $("settings");
  form.hidden = !form.hidden;
  $("toggle-settings").setAttribute("aria-expanded", String(!form.hidden));
  if (!form.hidden) form.querySelector("textarea").focus();
}

function drawTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = settings.theme || system;
}

async function drawModels() {
  try {
    const names = await listModels(settings.api_key);
    $("model").replaceChildren(...names.map((name) => element("option", { textContent: name })));
    if (names.includes(settings.model)) $("model").value = settings.model;
  } catch (error) {
    $("model").replaceChildren(element("option", { value: "", textContent: error.message }));
  }
}

function readSettings(event) {
  for (const field of $("settings").elements) {
    field.classList.toggle("wrong", !field.checkValidity());
    if (field.name && field.checkValidity()) settings[field.name] = field.value;
  }
  saveSettings(settings);
  if (event?.target.name === "api_key") drawModels();
}

function start() {
  for (const field of $("settings").elements) {
    if (field.name) field.value = settings[field.name] ?? "";
  }
  $("settings").addEventListener("change", readSettings);
  $("settings").addEventListener("submit", (event) => event.preventDefault());
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("prompt").addEventListener("input", fit);
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  $("stop").addEventListener("click", stop);
  $("new-chat").addEventListener("click", () => open(newConversation()));
  $("delete-all").addEventListener("click", () => {
    if (!conversations.length || !confirm("Delete all conversations of this browser?")) return;
    conversations = [];
    saveConversations(conversations);
    open(newConversation());
  });
  $("model").addEventListener("change", () => {
    settings.model = $("model").value;
    saveSettings(settings);
  });
  $("toggle-settings").addEventListener("click", toggleSettings);
  $("toggle-sidebar").addEventListener("click", () => {
    toggleSidebar(!document.body.classList.contains("sidebar-open"));
  });
  $("toggle-theme").addEventListener("click", () => {
    settings.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    saveSettings(settings);
    drawTheme();
  });
  $("messages").addEventListener("scroll", () => {
    const box = $("messages");
    followed = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  });
  $("main").addEventListener("click", (event) => {
    if (PHONE.matches && event.target !== $("toggle-sidebar")) toggleSidebar(false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) stop();
    else if (event.key === "Escape") toggleSidebar(false);
    if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "o") {
      event.preventDefault();
      open(newConversation());
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);
  drawTheme();
  drawList();
  drawMessages();
  drawModels();
}

start();
