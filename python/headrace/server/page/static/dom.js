// Nodes of the page. Text never becomes markup: only createElement and text nodes.

const MATH = "http://www.w3.org/1998/Math/MathML";

export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function mathElement(tree) {
  const node = document.createElementNS(MATH, tree.tag);
  for (const [name, value] of Object.entries(tree.attributes)) node.setAttribute(name, value);
  if (tree.text !== undefined) node.textContent = tree.text;
  else node.append(...tree.children.map(mathElement));
  return node;
}

// `name`: for those who don't see the sign.
export function button(text, run, properties = {}) {
  const { name, ...others } = properties;
  const node = element("button", { type: "button", textContent: text, ...others });
  if (name) {
    node.setAttribute("aria-label", name);
    node.title ||= name;
  }
  node.addEventListener("click", run);
  return node;
}

export async function copyText(text, node) {
  const before = node.textContent;
  try {
    await navigator.clipboard.writeText(text);
    node.textContent = "Copied";
  } catch {
    node.textContent = copyOldWay(text) ? "Copied" : "Not allowed";
  }
  setTimeout(() => (node.textContent = before), 1500);
}

// Where a page without TLS has no clipboard.
function copyOldWay(text) {
  const field = element("textarea", { value: text, className: "hidden" });
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
