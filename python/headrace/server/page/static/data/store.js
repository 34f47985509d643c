// Conversations, kept in this browser and merged by id: each message is a record of its own, so that no
// tab writes over another's.
//
// chat: {id, title, created, changed, leaf: the last message of the branch shown, deleted: when}
// message: {id, chat, parent, role, content, pictures: [{name, blob}], reasoning, tool_calls, created,
//   state: "done" | "running" | "stopped" | "length" | "broken" | "failed", error, tokens, speed, model}

import { openDatabase } from "./database.js";

const KEPT_DELETED = 24 * 3600 * 1000; // ms
const channel = new BroadcastChannel("headrace");
const listeners = new Set();
let database;

export const newId = () => crypto.getRandomValues(new Uint32Array(3)).join("-");

// Whether conversations stay when the tab is closed.
export async function openStore() {
  database = await openDatabase();
  try {
    await takeOver();
    await takeLeft();
  } catch {
    // No localStorage, or what is in it is not the page's.
  }
  await purge((chat) => chat.deleted < Date.now() - KEPT_DELETED);
  channel.addEventListener("message", ({ data }) => tell(data));
  return database.isShared;
}

// `listener` hears of each change, of this tab and of others: {chat}, with `message` or `removed` (an id)
// where it is one of a message; {deleted: ids}; {merged}; and what tabs ask each other: {ask}, {alive}.
export function listen(listener) {
  listeners.add(listener);
}

function tell(what) {
  for (const listener of listeners) listener(what);
}

export function announce(what) {
  channel.postMessage(what);
}

function changed(what) {
  announce(what);
  tell(what);
}

export async function chats() {
  const all = await database.all("chats");
  return all.filter((one) => !one.deleted).sort((a, b) => b.changed - a.changed);
}

export async function deletedChats() {
  return (await database.all("chats")).filter((one) => one.deleted);
}

export async function messagesOf(chat) {
  return new Map((await database.all("messages", chat)).map((one) => [one.id, one]));
}

export function allMessages() {
  return database.all("messages");
}

// Merges fields into a conversation, which is made if there is none. title: for one that has none.
export async function changeChat(id, fields, title = "") {
  const now = Date.now();
  await database.change("chats", [id], (old) => {
    const chat = old ?? { id, title: "", created: now, changed: now, leaf: null, deleted: 0 };
    return { ...chat, title: chat.title || title, ...fields };
  });
  changed({ chat: id });
}

export async function putMessage(message) {
  await database.change("messages", [message.id], () => message);
  changed({ chat: message.chat, message });
}

export async function removeMessage(message) {
  await database.change("messages", [message.id], () => null);
  changed({ chat: message.chat, removed: message.id });
}

// Marks conversations as deleted, or, with 0, as not deleted.
export async function markDeleted(ids, when) {
  await database.change("chats", ids, (old) => (old ? { ...old, deleted: when } : null));
  changed({ deleted: when ? ids : [] });
}

// Records of a file: those that are here already stay as they are.
export async function merge(chatList, messageList) {
  const byId = (list) => new Map(list.map((one) => [one.id, one]));
  const [some, more] = [byId(messageList), byId(chatList)];
  await database.change("messages", [...some.keys()], (old, id) => old ?? some.get(id));
  await database.change("chats", [...more.keys()], (old, id) => {
    return old ? { ...old, deleted: 0 } : more.get(id);
  });
  changed({ merged: true });
}

// Deletes for good what is marked as deleted and `isMeant`.
export async function purge(isMeant = () => true) {
  const ids = (await deletedChats()).filter(isMeant).map((one) => one.id);
  for (const id of ids) {
    await database.change("messages", [...(await messagesOf(id)).keys()], () => null);
  }
  await database.change("chats", ids, () => null);
  if (ids.length) changed({ deleted: ids });
}

// Conversations as earlier versions of the page kept them.
async function takeOver() {
  const name = "headrace.conversations";
  const old = JSON.parse(localStorage.getItem(name)) ?? [];
  for (const [place, { id, title, messages }] of [...old].reverse().entries()) {
    let parent = null;
    const made = messages.map(({ role, content, reasoning, tool_calls: calls }, at) => {
      const message = { id: `${id}-${at}`, chat: id, parent, role, content, reasoning, tool_calls: calls };
      parent = message.id;
      return { ...message, created: at, state: "done" };
    });
    const chat = { id, title, created: place, changed: place, leaf: parent, deleted: 0 };
    await merge([chat], made);
  }
  localStorage.removeItem(name);
}

// ---- what a tab has left behind

const LEFT = "headrace.left.";

// For a page that is going: the database would not get to it any more.
export function leave(message) {
  try {
    localStorage.setItem(LEFT + message.id, JSON.stringify(message));
  } catch {
    // What was stored last stays.
  }
}

async function takeLeft() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(LEFT));
  const left = names.map((name) => JSON.parse(localStorage.getItem(name)));
  for (const message of left) {
    const kept = (old) => (old?.state === "running" ? message : (old ?? null));
    await database.change("messages", [message.id], kept);
  }
  for (const name of names) localStorage.removeItem(name);
}
