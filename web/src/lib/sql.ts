/** Just enough of SQL's surface for an editor: where statements begin and end, and where an error is. */

export interface Statement {
  text: string;
  start: number;
  end: number;
  kind: "pull" | "push" | "other";
}

export interface Step {
  /** One SELECT, or a run of other statements that are sent together. */
  kind: "pull" | "push" | "statements";
  text: string;
  start: number;
}

const TOKEN = /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*(?:'|$)|`(?:[^`]|``)*(?:`|$)|"(?:[^"]|"")*(?:"|$)|;|[A-Za-z_]\w*|\s+|[\s\S]/g;

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
  if (words[0] !== "SELECT" && words[0] !== "PRINT") return "other";
  return words.some((word, at) => word === "EMIT" && words[at + 1] === "CHANGES") ? "push" : "pull";
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
