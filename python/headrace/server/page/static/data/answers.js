// Asking the model. What is sent is stored before it is sent; an answer is stored as it comes, and goes on
// whatever conversation is shown.

import { CallError, streamChat } from "./api.js";
import { dataUrl } from "./pictures.js";
import { requestFields, settings } from "./settings.js";
import { announce, changeChat, leave, listen, messagesOf, newId, putMessage, removeMessage } from "./store.js";
import { pathTo } from "./tree.js";

const SAVE_EVERY = 300; // ms
const GO_ON = "Go on exactly where you stopped. Repeat nothing.";
const runs = new Map(); // AbortControllers and messages of the answers that are being written, by id
const drawers = new Set();

// `drawer(message)` hears of each piece of an answer.
export function whileWriting(drawer) {
  drawers.add(drawer);
}

export const isRunning = (id) => runs.has(id);

// The run of a conversation's answer; id: of that answer alone.
export function runOf(chat, id) {
  return [...runs.values()].find(({ message: one }) => one.chat === chat && (!id || one.id === id));
}

export function stop(chat) {
  for (const { message, controller } of runs.values()) if (message.chat === chat) controller.abort();
}

// Stores a message of the user's, and asks for its answer.
export async function ask(chat, parent, content, pictures) {
  const message = {
    ...{ id: newId(), chat, parent, role: "user", content, pictures },
    ...{ created: Date.now(), state: "done" },
  };
  const title = content.split(/\s+/).filter(Boolean).join(" ").slice(0, 60) || "Picture";
  await putMessage(message);
  await changeChat(chat, { leaf: message.id, changed: Date.now(), deleted: 0 }, title);
  await answer(chat, message.id);
}

// Writes a new answer to `parent`; an earlier one that failed with nothing gives its place.
export async function answer(chat, parent) {
  stop(chat);
  const messages = await messagesOf(chat);
  for (const one of messages.values()) {
    const isEmpty = !one.content && !one.reasoning && !one.tool_calls?.length;
    if (one.parent === parent && one.state === "failed" && isEmpty) await removeMessage(one);
  }
  const message = {
    ...{ id: newId(), chat, parent, role: "assistant", content: "", reasoning: "", tool_calls: [] },
    ...{ created: Date.now(), state: "running", model: settings.model ?? "" },
  };
  await write(message, async () => conversation(pathTo(messages, parent)));
}

// Goes on with an answer that has been cut or interrupted.
export async function goOn(message) {
  stop(message.chat);
  const messages = await messagesOf(message.chat);
  const goesOn = { ...message, state: "running", error: null };
  const before = await conversation(pathTo(messages, message.parent));
  const written = { role: "assistant", content: message.content };
  try {
    await write(
      goesOn,
      async () => [...before, written],
      { continue_final_message: true, add_generation_prompt: false },
      (error) => error.param === "continue_final_message",
    );
  } catch {
    // A server or a template that can't: the model is asked to.
    await write(goesOn, async () => [...before, written, { role: "user", content: GO_ON }]);
  }
}

// Throws what `isForCaller` says; other errors become the message's.
async function write(message, messages, more = {}, isForCaller = () => false) {
  const controller = new AbortController();
  const run = { message, controller, saved: 0 };
  const before = { tokens: message.tokens ?? 0 };
  runs.set(message.id, run);
  try {
    await putMessage({ ...message });
    await changeChat(message.chat, { leaf: message.id, changed: Date.now() });
    const body = { ...requestFields(), ...more, messages: await messages() };
    if (settings.model) body.model = settings.model;
    body.stream_options = { include_usage: true, continuous_usage_stats: true, include_timings: true };
    for await (const piece of streamChat(body, settings.api_key, controller.signal)) {
      add(message, piece, before);
      for (const drawer of drawers) drawer(message);
      saveNow(run);
    }
    if (message.state === "running") message.state = "done";
  } catch (error) {
    if (isForCaller(error)) throw error;
    fail(message, error, controller.signal.aborted);
  } finally {
    // Only then: what was stored of it before must not look like an answer that nobody writes.
    await putMessage({ ...message }).finally(() => runs.delete(message.id));
    for (const drawer of drawers) drawer(message);
  }
}

function fail(message, error, isAborted) {
  message.state = isAborted ? "stopped" : "failed";
  const kind = error instanceof CallError ? error.kind : "refused";
  message.error = isAborted ? null : { kind, text: error.message };
}

function saveNow(run) {
  const now = performance.now();
  if (now - run.saved < SAVE_EVERY) return;
  run.saved = now;
  putMessage({ ...run.message }).catch(() => {});
}

function add(message, piece, before) {
  const choice = piece.choices[0];
  const delta = choice?.delta ?? {};
  message.content += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? "";
  for (const part of delta.tool_calls ?? []) {
    const call = (message.tool_calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" });
    call.id ||= part.id ?? "";
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
  if (choice?.finish_reason) message.state = choice.finish_reason === "length" ? "length" : "done";
  if (piece.usage) message.tokens = before.tokens + piece.usage.completion_tokens;
  if (piece.timings) message.speed = piece.timings.predicted_per_second;
}

// ---- what the server is sent

async function conversation(path) {
  const told = path.filter((one) => one.role === "user" || one.content || one.tool_calls?.length);
  const messages = await Promise.all(told.map(sent));
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  return messages;
}

async function sent({ role, content, pictures, tool_calls: calls }) {
  if (calls?.length) {
    const written = calls.map(({ id, name, arguments: text }) => ({
      ...{ id, type: "function" },
      function: { name, arguments: text },
    }));
    return { role, content, tool_calls: written };
  }
  if (!pictures?.length) return { role, content };
  const urls = await Promise.all(pictures.map(({ blob }) => dataUrl(blob)));
  const parts = urls.map((url) => ({ type: "image_url", image_url: { url } }));
  return { role, content: content ? [...parts, { type: "text", text: content }] : parts };
}

// ---- answers that other tabs write, or that a reload has interrupted

// Whether any tab is still writing the message.
export async function isAlive(id) {
  if (runs.has(id)) return true;
  return new Promise((resolve) => {
    waiting.set(id, () => resolve(true));
    announce({ ask: id });
    setTimeout(() => resolve(false), 500);
  });
}

const waiting = new Map();
listen(({ ask: asked, alive }) => {
  if (asked && runs.has(asked)) announce({ alive: asked });
  if (alive) waiting.get(alive)?.();
});

addEventListener("pagehide", () => {
  for (const { message } of runs.values()) leave({ ...message, state: "broken" });
});
