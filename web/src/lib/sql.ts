/** Just enough of SQL's surface for an editor: where statements begin and end, and where an error is. */

export interface Statement {
  text: string;
  start: number;
  end: number;
  kind: "pull" | "push" | "print" | "set" | "other";
}

export interface Step {
  /** One SELECT, PRINT or SET, or a run of other statements that are sent together. */
  kind: "pull" | "push" | "print" | "set" | "statements";
  text: string;
  start: number;
}

const TOKEN = /\$\$[\s\S]*?(?:\$\$|$)|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*(?:'|$)|`(?:[^`]|``)*(?:`|$)|"(?:[^"]|"")*(?:"|$)|;|[A-Za-z_]\w*|\s+|[\s\S]/g;

/** Splits at the semicolons that are not in strings, quoted names or comments. */
export function split(text: string): Statement[] {
  const found: Statement[] = [];
  let start = -1;
  let words: string[] = [];
  const finish = (end: number): void => {
    if (start >= 0) found.push({ text: text.slice(start, end), start, end, kind: kindOf(words) });
    start = -1;
    words = [];
  };
  for (const match of text.matchAll(TOKEN)) {
    const token = match[0];
    if (token === ";") {
      finish(match.index + 1);
    } else if (!/^(\s|--|\/\*)/.test(token)) {
      if (start < 0) start = match.index;
      if (/^[A-Za-z_]/.test(token)) words.push(token.toUpperCase());
    }
  }
  finish(text.trimEnd().length);
  return found;
}

function kindOf(words: string[]): Statement["kind"] {
  const [first] = words;
  if (first === "PRINT") return "print";
  if (first === "SET" || first === "UNSET") return "set";
  if (first !== "SELECT" && first !== "WITH") return "other";
  return words.some((word, at) => word === "EMIT" && /^(CHANGES|FINAL)$/.test(words[at + 1] ?? "")) ? "push" : "pull";
}

/** What a SET or UNSET says: the property in lower case, and its value or nothing. */
export function settingOf(text: string): [string, string | null] | null {
  const found = /^\s*(SET|UNSET)\s+'((?:[^']|'')+)'(?:\s*=\s*'((?:[^']|'')*)')?\s*;?\s*$/i.exec(text);
  if (!found) return null;
  const value = found[1]!.toUpperCase() === "SET" ? (found[3] ?? "").replaceAll("''", "'") : null;
  return [found[2]!.replaceAll("''", "'").toLowerCase(), value];
}

export interface Printing {
  topic: string;
  fromBeginning: boolean;
  interval: number;
  limit: number | null;
}

/** What a PRINT asks for. */
export function printingOf(text: string): Printing | null {
  const found = /^\s*PRINT\s+(?:'((?:[^']|'')+)'|`([^`]+)`|"([^"]+)"|([\w.-]+))([^;]*);?\s*$/i.exec(text);
  if (!found) return null;
  const rest = found[5] ?? "";
  const count = (word: string): number | null => {
    const given = new RegExp(`\\b(?:${word})\\s+(\\d+)`, "i").exec(rest);
    return given ? Number(given[1]) : null;
  };
  const topic = (found[1] ?? found[2] ?? found[3] ?? found[4]!).replaceAll("''", "'");
  return { topic, fromBeginning: /\bFROM\s+BEGINNING\b/i.test(rest), interval: count("INTERVAL|SAMPLE") ?? 1, limit: count("LIMIT") };
}

/** What can be explained of a statement: itself if it is a query or makes one, without an EXPLAIN before it. */
export function explainable(text: string): string | null {
  const plain = text.replace(/^\s*EXPLAIN\s+(EXTENDED\s+)?/i, "");
  return /^\s*(SELECT|WITH|INSERT|CREATE)\b/i.test(plain) ? plain.trim() : null;
}

/** What to send, in order. Statements that are not queries go together, so that one sees what the one before made. */
export function steps(text: string, offset = 0): Step[] {
  const found: Step[] = [];
  for (const statement of split(text)) {
    const last = found.at(-1);
    if (statement.kind === "other" && last?.kind === "statements") {
      last.text = text.slice(last.start - offset, statement.end);
    } else {
      found.push({ kind: statement.kind === "other" ? "statements" : statement.kind, text: statement.text, start: statement.start + offset });
    }
  }
  return found;
}

/** The statement the cursor is in, or the one right before it. */
export function statementAt(text: string, position: number): Statement | null {
  const all = split(text);
  return all.find(({ start, end }) => position >= start && position <= end) ?? all.findLast(({ end }) => end <= position) ?? all[0] ?? null;
}

export interface Place {
  line?: number | undefined;
  column?: number | undefined;
  length?: number | undefined;
}

/**
 * Where an error is in the editor's text. Lines and columns count from 1, in characters as the server counts them, in
 * the text that was sent, which began at `base`. Without a place it is the whole text sent.
 */
export function errorRange(sent: string, place: Place, base = 0): { from: number; to: number } {
  if (!place.line || !place.column) return { from: base, to: base + Math.max(1, sent.trimEnd().length) };
  const lines = sent.split("\n");
  const at = Math.min(place.line, lines.length) - 1;
  const lineStart = lines.slice(0, at).reduce((sum, line) => sum + line.length + 1, 0);
  const line = lines[at]!;
  const column = units(line, place.column - 1);
  const length = Math.max(1, units(line.slice(column), Math.max(1, place.length ?? 1)));
  const from = Math.min(lineStart + column, sent.length);
  return { from: base + from, to: base + Math.max(from, Math.min(from + length, sent.length)) };
}

/** UTF-16 units of the first `characters` code points: Python counts those, JavaScript does not. */
function units(text: string, characters: number): number {
  let index = 0;
  for (let i = 0; i < characters && index < text.length; i += 1) index += text.codePointAt(index)! > 0xffff ? 2 : 1;
  return index;
}
