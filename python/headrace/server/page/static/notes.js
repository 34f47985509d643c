// Short notes at the foot of the page, and menus.

import { button, element } from "./dom.js";

const SECONDS = 12;
let timer = 0;

// A note that goes by itself; `way`: [text, run], what can be done about it.
export function note(text, way) {
  const box = document.getElementById("note");
  const close = () => {
    box.hidden = true;
  };
  const parts = [element("span", { textContent: text })];
  if (way) {
    const [words, run] = way;
    parts.push(button(words, () => (close(), run()), { className: "main" }));
  }
  parts.push(button("×", close, { name: "Close" }));
  box.replaceChildren(...parts);
  box.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(close, SECONDS * 1000);
}

export function failed(error) {
  const isFull = error?.name === "QuotaExceededError";
  note(isFull ? "The browser has no room left for conversations: delete some for good." : error.message);
}

// A list of buttons below `anchor`: [text, run] each. The browser closes it by Escape and by clicks
// elsewhere.
export function openMenu(anchor, items) {
  const menu = element("div", { className: "menu", popover: "auto" });
  const close = () => menu.hidePopover();
  menu.append(...items.map(([text, run]) => button(text, () => (close(), run()))));
  menu.addEventListener("toggle", ({ newState }) => {
    if (newState !== "closed") return;
    if (menu.contains(document.activeElement)) anchor.focus();
    menu.remove();
  });
  menu.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const all = [...menu.children];
    all.at((all.indexOf(document.activeElement) + by) % all.length).focus();
  });
  document.body.append(menu);
  const at = anchor.getBoundingClientRect();
  menu.showPopover();
  const { offsetWidth: width, offsetHeight: height } = menu;
  menu.style.left = `${Math.max(4, Math.min(at.left, innerWidth - width - 4))}px`;
  const below = at.bottom + 4;
  menu.style.top = `${below + height > innerHeight ? Math.max(4, at.top - height - 4) : below}px`;
  menu.firstElementChild.focus();
}
