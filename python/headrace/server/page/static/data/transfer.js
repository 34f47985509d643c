// Conversations as files: JSON, with pictures in it.

import { element } from "../dom.js";
import { dataUrl, fromDataUrl } from "./pictures.js";
import { chats, merge, messagesOf } from "./store.js";

const FORM = "headrace conversations 1";
const ROLES = ["user", "assistant"];

export async function exportChats(ids) {
  const list = (await chats()).filter((one) => ids.includes(one.id));
  const messages = [];
  for (const { id } of list) {
    for (const one of (await messagesOf(id)).values()) messages.push(await plain(one));
  }
  const text = JSON.stringify({ form: FORM, chats: list, messages }, null, 1);
  const name = list.length === 1 ? fileName(list[0].title) : "conversations";
  download(new Blob([text], { type: "application/json" }), `${name}.json`);
}

async function plain({ pictures, ...message }) {
  if (!pictures?.length) return message;
  const urls = await Promise.all(pictures.map(({ blob }) => dataUrl(blob)));
  return { ...message, pictures: pictures.map(({ name }, at) => ({ name, url: urls[at] })) };
}

function fileName(title) {
  return title.replace(/[^\p{L}\p{N}]/gu, "_").slice(0, 40) || "conversation";
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// How many conversations the file has. Throws Error, in words, for what is no such file.
export async function importFile(file) {
  let found;
  try {
    found = JSON.parse(await file.text());
    if (found.form !== FORM) throw new Error("of another form");
    found = { chats: found.chats.map(readChat), messages: found.messages.map(readMessage) };
  } catch (error) {
    throw new Error(`${file.name} has no conversations that this page has exported (${error.message}).`);
  }
  await merge(found.chats, found.messages);
  return found.chats.length;
}

// Only what a record may hold, each field of its type.
function readChat(given) {
  const { id, title, created, changed } = given;
  const leaf = given.leaf === null ? null : text(given.leaf);
  const times = { created: number(created), changed: number(changed) };
  return { id: identifier(id), title: text(title).slice(0, 200), leaf, deleted: 0, ...times };
}

function readMessage(given) {
  const { id, chat, parent, role, content, reasoning = "", tool_calls: calls = [], pictures = [] } = given;
  if (!ROLES.includes(role)) throw new Error("a message of nobody");
  const message = {
    ...{ id: identifier(id), chat: identifier(chat), parent: parent === null ? null : text(parent) },
    ...{ role, content: text(content), reasoning: text(reasoning), created: number(given.created) },
    state: given.state === "running" ? "broken" : text(given.state ?? "done"),
    tool_calls: calls.map((call) => ({
      ...{ id: text(call.id), name: text(call.name), arguments: text(call.arguments) },
    })),
    pictures: pictures.map(({ name, url }) => ({ name: text(name), blob: fromDataUrl(text(url)) })),
  };
  if (given.tokens) message.tokens = number(given.tokens);
  if (given.speed) message.speed = number(given.speed);
  if (message.state === "failed") message.state = "broken";
  return message;
}

function text(value) {
  if (typeof value !== "string") throw new Error("a field is no text");
  return value;
}

// Ids stand in addresses.
function identifier(value) {
  if (!/^[\w-]{1,80}$/.test(text(value))) throw new Error("an id is none");
  return value;
}

function number(value) {
  if (!Number.isFinite(value)) throw new Error("a field is no number");
  return value;
}
