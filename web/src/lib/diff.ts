/** What changed between two texts, line by line. */

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
}

/** By the longest common subsequence of lines: schemas are short, so the plain table will do. */
export function diff(before: string, after: string): DiffLine[] {
  const a = before.split("\n");
  const b = after.split("\n");
  const common = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      common[i]![j] = a[i] === b[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!);
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i]! });
      i += 1;
      j += 1;
    } else if (i < a.length && (j >= b.length || common[i + 1]![j]! >= common[i]![j + 1]!)) {
      lines.push({ kind: "removed", text: a[i]! });
      i += 1;
    } else {
      lines.push({ kind: "added", text: b[j]! });
      j += 1;
    }
  }
  return lines;
}

/** A schema as people compare it: JSON in lines, anything else as it is. */
export function pretty(schema: string): string {
  try {
    return JSON.stringify(JSON.parse(schema), null, 2);
  } catch {
    return schema;
  }
}

/** An event as people compare it: a field a line, and not a digit of it changed, as reading it would large numbers. */
export function fieldLines(event: string): string {
  const text = event.trim();
  if (!text.startsWith("{") || !text.endsWith("}")) return event;
  let lines = "";
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at]!;
    if (quoted && letter === "\\") {
      lines += letter + (text[at + 1] ?? "");
      at += 1;
      continue;
    }
    if (letter === '"') quoted = !quoted;
    if (!quoted && (letter === "}" || letter === "]")) depth -= 1;
    if (!quoted && depth === 0 && letter === "}") lines = `${lines.trimEnd()}\n`;
    lines += !quoted && depth === 1 && /\s/.test(letter) ? "" : letter;
    if (!quoted && (letter === "{" || letter === "[")) depth += 1;
    if (!quoted && depth === 1 && (letter === "," || letter === "{")) lines += "\n  ";
    if (!quoted && depth === 1 && letter === ":") lines += " ";
  }
  return lines;
}
