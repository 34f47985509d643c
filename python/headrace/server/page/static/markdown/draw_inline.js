// What stands within a line, in the page.

import { element, mathElement } from "../dom.js";
import { formula } from "./math.js";

// Makes `parent`'s children those of `parts`; `drawn` remembers what was made.
export function patchInline(parent, parts, drawn) {
  for (let at = 0; at < parts.length; at += 1) {
    const part = parts[at];
    const old = drawn[at];
    if (old && sameKind(old.part, part)) {
      patchPart(old, part);
      old.part = part;
      continue;
    }
    const made = { part: { type: part.type, text: "" }, node: newNode(part), inner: [] };
    patchPart(made, part);
    made.part = part;
    if (old) old.node.replaceWith(made.node);
    else parent.append(made.node);
    drawn[at] = made;
  }
  while (drawn.length > parts.length) drawn.pop().node.remove();
}

function sameKind(old, part) {
  if (old.type !== part.type || old.url !== part.url || old.kind !== part.kind) return false;
  return part.type !== "math" || (old.text === part.text && old.display === part.display);
}

// Text is added to, not set anew, where it has only grown.
function patchPart(made, part) {
  if (part.children) return patchInline(made.node, part.children, made.inner);
  if (part.text === made.part.text || part.type === "math" || part.type === "break") return undefined;
  const node = part.type === "text" ? made.node : made.node.firstChild;
  if (part.text.startsWith(made.part.text)) node.appendData(part.text.slice(made.part.text.length));
  else node.data = part.text;
  return undefined;
}

function newNode(part) {
  switch (part.type) {
    case "text":
      return document.createTextNode("");
    case "break":
      return element("br");
    case "code":
      return element("code", {}, "");
    case "colour":
      return element("span", { className: `c-${part.kind}` }, "");
    case "math":
      return formulaNode(part.text, part.display);
    case "link":
      return element("a", { href: part.url, target: "_blank", rel: "noopener noreferrer" });
    case "picture": // of another place: the page loads nothing from there
      return element("a", { href: part.url, target: "_blank", rel: "noopener noreferrer", className: "away" });
    default:
      return element(part.type);
  }
}

export function formulaNode(text, isDisplay) {
  const tree = formula(text, isDisplay);
  if (!tree) return element("code", { textContent: text });
  const node = mathElement(tree);
  node.setAttribute("aria-label", text.trim());
  return node;
}
