// A conversation's messages are a tree: editing and asking again begin branches.

// From the first message to `leaf`.
export function pathTo(messages, leaf) {
  const path = [];
  const seen = new Set();
  for (let one = messages.get(leaf); one && !seen.has(one.id); one = messages.get(one.parent)) {
    seen.add(one.id);
    path.push(one);
  }
  return path.reverse();
}

// The message and what else stands in its place, oldest first.
export function siblings(messages, message) {
  return [...messages.values()].filter((one) => one.parent === message.parent).sort(older);
}

// The last message of the branch that was begun last, from `message` on (null: from the beginning).
export function newestLeaf(messages, message) {
  let leaf = message?.id ?? null;
  const newest = new Map();
  for (const one of [...messages.values()].sort(older)) newest.set(one.parent, one.id);
  for (const seen = new Set(); newest.has(leaf) && !seen.has(leaf); leaf = newest.get(leaf)) seen.add(leaf);
  return leaf;
}

function older(a, b) {
  return a.created - b.created || (a.id < b.id ? -1 : 1);
}
