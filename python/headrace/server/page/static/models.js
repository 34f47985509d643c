// The server's models: which there are, what they can do, and whether the server answers at all.

import { listModels } from "./data/api.js";
import { button, element } from "./dom.js";
import { saveSettings, setChatSampling, settings } from "./data/settings.js";

const AGAIN = 3000; // ms, while the server doesn't answer

// `changed()` hears of another model, or of another list. enterKey(): shows where the key is entered.
export class Models {
  #select = document.getElementById("model");
  #notice = document.getElementById("notice");
  #models = [];
  #timer = 0;

  constructor({ changed, enterKey }) {
    this.changed = changed;
    this.enterKey = enterKey;
    this.#select.addEventListener("change", () => {
      saveSettings({ model: this.#select.value });
      setChatSampling(this.#chosen?.chat_sampling);
      changed();
    });
  }

  get seesPictures() {
    return Boolean(this.#chosen?.capabilities?.vision);
  }

  get #chosen() {
    return this.#models.find(({ id }) => id === this.#select.value);
  }

  async load() {
    clearTimeout(this.#timer);
    try {
      this.#models = (await listModels(settings.api_key)).filter(answers);
      this.#draw();
      this.#say(null);
    } catch (error) {
      this.#select.replaceChildren(element("option", { value: "", textContent: "no model" }));
      this.#say(error);
    }
    this.changed();
  }

  #draw() {
    const names = this.#models.map((one) => one.id);
    this.#select.replaceChildren(...names.map((name) => element("option", { textContent: name })));
    if (names.includes(settings.model)) this.#select.value = settings.model;
    else saveSettings({ model: names[0] });
    setChatSampling(this.#chosen?.chat_sampling);
  }

  #say(error) {
    this.#notice.hidden = !error;
    if (!error) return;
    const parts = [element("span", { textContent: error.message })];
    if (error.kind === "key") {
      parts.push(button("Enter the key", this.enterKey, { className: "main" }));
    } else {
      parts.push(element("span", { className: "quiet", textContent: "Trying again …" }));
      this.#timer = setTimeout(() => this.load(), AGAIN);
    }
    this.#notice.replaceChildren(...parts);
  }
}

function answers({ capabilities }) {
  return capabilities?.completion_chat !== false;
}
