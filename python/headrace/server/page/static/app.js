// The page: what buttons, keys and addresses do.

import { isRunning, runOf, stop, whileWriting } from "./data/answers.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Models } from "./models.js";
import { failed, note } from "./notes.js";
import { bindForm, saveSettings, settings } from "./data/settings.js";
import { Sidebar } from "./sidebar.js";
import { chats, listen, newId, openStore } from "./data/store.js";

const $ = (id) => document.getElementById(id);
const PHONE = matchMedia("(max-width: 720px)");
const DARK = matchMedia("(prefers-color-scheme: dark)");
const ADDRESS = "#/chat/";

const models = new Models({ changed: drawButtons, enterKey });
const conversation = new Conversation($("messages"), { enterKey, newChat, failed, changed: drawButtons });
const sidebar = new Sidebar({ address: (chat) => ADDRESS + chat, left: newChat });
const composer = new Composer({ send, seesPictures: () => models.seesPictures });

// ---- conversations and their addresses

function addressed() {
  return location.hash.startsWith(ADDRESS) ? location.hash.slice(ADDRESS.length) : null;
}

async function show() {
  const wanted = addressed();
  const chat = wanted ?? newId();
  if (PHONE.matches) toggleSidebar(false);
  composer.open(wanted ?? "new");
  await Promise.all([conversation.open(chat), sidebar.show(chat)]);
  if (wanted && !(await chats()).some((one) => one.id === wanted) && addressed() === wanted) {
    note("There is no such conversation in this browser.");
    history.replaceState(null, "", location.pathname);
  }
  await drawTitle();
}

function newChat() {
  if (location.hash) history.pushState(null, "", location.pathname);
  show().catch(failed);
}

async function drawTitle() {
  const chat = (await chats()).find((one) => one.id === conversation.chat);
  document.title = chat?.title ? `${chat.title} – Headrace` : "Headrace";
}

function send(text, pictures) {
  if (runOf(conversation.chat)) return false;
  conversation.send(text, pictures).catch(failed);
  if (addressed() !== conversation.chat) {
    history.pushState(null, "", ADDRESS + conversation.chat);
    sidebar.current = conversation.chat;
  }
  return true;
}

// ---- the frame

function drawButtons() {
  const runs = Boolean(runOf(conversation.chat));
  $("stop").hidden = !runs;
  $("send").hidden = runs;
  $("attach").hidden = !models.seesPictures;
}

function toggleSidebar(wanted) {
  document.body.classList.toggle("sidebar-open", wanted);
  $("toggle-sidebar").setAttribute("aria-expanded", String(wanted));
}

function toggleSettings(wanted = $("settings").hidden) {
  $("settings").hidden = !wanted;
  $("toggle-settings").setAttribute("aria-expanded", String(wanted));
  if (wanted) $("settings").elements[0].focus();
}

function enterKey() {
  toggleSettings(true);
  $("settings").elements.api_key.focus();
}

function drawTheme() {
  document.documentElement.dataset.theme = settings.theme || (DARK.matches ? "dark" : "light");
}

function onKey(event) {
  if (event.key === "Escape") {
    if (runOf(conversation.chat)) stop(conversation.chat);
    else toggleSidebar(false);
  }
  if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "o") {
    event.preventDefault();
    newChat();
  }
}

// Tells those who don't see the page that an answer has ended.
function speak({ message, chat }) {
  if (chat !== conversation.chat || message?.role !== "assistant") return;
  $("status").textContent = isRunning(message.id) ? "The answer is being written." : "The answer has ended.";
}

async function start() {
  drawTheme();
  DARK.addEventListener("change", drawTheme);
  bindForm($("settings"), (name) => name === "api_key" && models.load());
  $("stop").addEventListener("click", () => stop(conversation.chat));
  $("new-chat").addEventListener("click", newChat);
  $("toggle-settings").addEventListener("click", () => toggleSettings());
  $("toggle-sidebar").addEventListener("click", () => {
    toggleSidebar(!document.body.classList.contains("sidebar-open"));
  });
  $("toggle-theme").addEventListener("click", () => {
    saveSettings({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
    drawTheme();
  });
  $("main").addEventListener("click", ({ target }) => {
    if (PHONE.matches && target !== $("toggle-sidebar")) toggleSidebar(false);
  });
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", () => show().catch(failed));
  models.load();
  if (!(await openStore())) {
    note("This browser keeps nothing: conversations are gone when the tab is closed.");
  }
  listen((what) => {
    speak(what);
    if (what.merged) show().catch(failed);
    else if (what.deleted?.includes(conversation.chat)) newChat();
    else if (what.chat === conversation.chat && !what.message) drawTitle();
  });
  whileWriting(({ chat }) => chat === conversation.chat && drawButtons());
  await show();
}

start().catch(failed);
