// Conversations and settings, kept in this browser only.

const CONVERSATIONS = "headrace.conversations";
const SETTINGS = "headrace.settings";
const KEY = "headrace.api_key"; // gone with the tab
const MOST = 200;

function read(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function loadConversations() {
  const list = read(CONVERSATIONS, []);
  return Array.isArray(list) ? list.filter((one) => one && Array.isArray(one.messages)) : [];
}

// The oldest give way when the browser has no more room.
export function saveConversations(list) {
  for (let kept = list.slice(0, MOST); ; kept = kept.slice(0, -1)) {
    try {
      localStorage.setItem(CONVERSATIONS, JSON.stringify(kept));
      return;
    } catch {
      if (!kept.length) return;
    }
  }
}

export function newConversation() {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: "", messages: [] };
}

export function loadSettings() {
  return { ...read(SETTINGS, {}), api_key: sessionStorage.getItem(KEY) ?? "" };
}

export function saveSettings({ api_key: key, ...settings }) {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(settings));
    sessionStorage.setItem(KEY, key ?? "");
  } catch {
    // A browser that keeps nothing: the settings hold until the page is closed.
  }
}
