// Where a message is written, with pictures that are chosen, dropped or pasted.

import { button, element } from "./dom.js";
import { failed, note } from "./notes.js";
import { picture, pictureFiles, thumbnail } from "./data/pictures.js";

const DRAFT = "headrace.draft."; // what is not sent yet outlives a reload of the tab

// `actions`: send(text, pictures): whether it was taken; seesPictures(): whether the model does.
export class Composer {
  #form = document.getElementById("composer");
  #field = document.getElementById("prompt");
  #tray = document.getElementById("tray");
  #file = document.getElementById("file");
  #pictures = [];
  #actions;
  #chat = "";

  constructor(actions) {
    this.#actions = actions;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#field.addEventListener("input", () => {
      this.#fit();
      this.#keep();
    });
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    this.#takePictures();
  }

  // The draft of another conversation.
  open(chat) {
    this.#chat = chat;
    this.#pictures = [];
    this.#drawTray();
    try {
      this.#field.value = sessionStorage.getItem(DRAFT + chat) ?? "";
    } catch {
      this.#field.value = "";
    }
    this.#fit();
    this.#field.focus();
  }

  #keep() {
    try {
      if (this.#field.value) sessionStorage.setItem(DRAFT + this.#chat, this.#field.value);
      else sessionStorage.removeItem(DRAFT + this.#chat);
    } catch {
      // A browser that keeps nothing.
    }
  }

  #send() {
    const text = this.#field.value.trim();
    if (!text && !this.#pictures.length) return;
    if (!this.#actions.send(text, this.#pictures)) return;
    this.#field.value = "";
    this.#pictures = [];
    this.#drawTray();
    this.#fit();
    this.#keep();
  }

  #fit() {
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight + 2}px`;
  }

  #takePictures() {
    const attach = document.getElementById("attach");
    attach.addEventListener("click", () => this.#file.click());
    this.#file.addEventListener("change", () => {
      this.#add([...this.#file.files]);
      this.#file.value = "";
    });
    this.#field.addEventListener("paste", (event) => {
      const files = pictureFiles(event.clipboardData);
      if (!files.length) return;
      event.preventDefault();
      this.#add(files);
    });
    addEventListener("dragover", (event) => {
      event.preventDefault();
      if (event.dataTransfer?.types.includes("Files")) document.body.classList.add("drops");
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("drops");
    });
    addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("drops");
      const files = pictureFiles(event.dataTransfer);
      if (files.length) this.#add(files);
      else if (event.dataTransfer?.files.length) note("Only pictures can be sent along.");
    });
  }

  async #add(files) {
    if (!this.#actions.seesPictures()) {
      note("This model reads text only: it can't see pictures.");
      return;
    }
    for (const file of files) {
      try {
        this.#pictures.push(await picture(file));
      } catch (error) {
        failed(error);
      }
    }
    this.#drawTray();
    this.#field.focus();
  }

  #drawTray() {
    this.#tray.hidden = !this.#pictures.length;
    this.#tray.replaceChildren(
      ...this.#pictures.map((one) => {
        const remove = () => {
          this.#pictures = this.#pictures.filter((other) => other !== one);
          this.#drawTray();
          this.#field.focus();
        };
        const away = button("×", remove, { name: `Leave out ${one.name}` });
        return element("span", { className: "attached" }, thumbnail(one, ""), away);
      }),
    );
  }
}
