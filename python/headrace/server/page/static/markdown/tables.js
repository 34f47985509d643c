// Tables' rows, as GitHub has them: `\|` is a bar within a cell.

const MAX_COLUMNS = 64; // more is no table

export function cells(line) {
  const text = line.trim();
  const found = [];
  let cell = "";
  let from = text[0] === "|" ? 1 : 0;
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      cell += `${text.slice(from, at)}|`;
      at += 1;
      from = at + 1;
    } else if (text[at] === "|") {
      found.push((cell + text.slice(from, at)).trim());
      if (found.length > MAX_COLUMNS) return found;
      cell = "";
      from = at + 1;
    }
  }
  if (from < text.length || cell) found.push((cell + text.slice(from)).trim());
  return found;
}

// |:--|--:|
export function isDelimiterRow(line) {
  let dashes = 0;
  let bars = 0;
  for (const char of line) {
    if (char === "-") dashes += 1;
    else if (char === "|") bars += 1;
    else if (char !== ":" && char !== " " && char !== "\t") return false;
  }
  if (!dashes || !bars) return false;
  const parts = cells(line);
  return parts.length <= MAX_COLUMNS && parts.every(isDelimiter);
}

function isDelimiter(cell) {
  const from = cell[0] === ":" ? 1 : 0;
  const end = cell.length - (cell.length > 1 && cell.endsWith(":") ? 1 : 0);
  if (end <= from) return false;
  for (let at = from; at < end; at += 1) if (cell[at] !== "-") return false;
  return true;
}

// "left", "center", "right" or "" for each column.
export function alignments(line) {
  return cells(line).map((cell) => {
    const left = cell.startsWith(":");
    const right = cell.endsWith(":");
    if (left && right) return "center";
    return right ? "right" : left ? "left" : "";
  });
}
