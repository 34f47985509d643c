// Settings, kept in this browser; the API key goes with the tab.

const SETTINGS = "headrace.settings";
const KEY = "headrace.api_key";
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const SAMPLING = ["temperature", "top_p", "top_k", "min_p"];
let chatSampling = {}; // the server's, where the settings choose none of SAMPLING

export const settings = load();

export function setChatSampling(values = {}) {
  chatSampling = values;
}

function load() {
  try {
    const stored = JSON.parse(localStorage.getItem(SETTINGS)) ?? {};
    return { ...stored, api_key: sessionStorage.getItem(KEY) ?? "" };
  } catch {
    return { api_key: "" };
  }
}

export function saveSettings(fields) {
  Object.assign(settings, fields);
  const { api_key: key, ...others } = settings;
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(others));
    sessionStorage.setItem(KEY, key ?? "");
  } catch {
    // A browser that keeps nothing: the settings hold until the page is closed.
  }
}

// What of a request's body the settings make. Throws Error for tools that are no JSON.
export function requestFields() {
  const fields = SAMPLING.some((name) => settings[name]) ? {} : { ...chatSampling };
  for (const name of NUMBERS) if (settings[name]) fields[name] = Number(settings[name]);
  if (settings.tools?.trim()) {
    try {
      fields.tools = JSON.parse(settings.tools);
    } catch (error) {
      throw new Error(`The tools in the settings are not JSON: ${error.message}`);
    }
  }
  return fields;
}

// Connects the form with the settings; `changed(name)` hears of what is changed in it.
export function bindForm(form, changed) {
  for (const field of form.elements) if (field.name) field.value = settings[field.name] ?? "";
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", ({ target }) => {
    const isValid = target.checkValidity();
    target.classList.toggle("wrong", !isValid);
    target.setAttribute("aria-invalid", String(!isValid));
    if (!isValid) return;
    saveSettings({ [target.name]: target.value });
    changed(target.name);
  });
}
