/** The SQL editor: CodeMirror with what the server knows, and its errors where they are. */

import { acceptCompletion, autocompletion, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { sql, SQLDialect } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { forEachDiagnostic, lintKeymap, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { Compartment, EditorState, StateEffect, StateField, type Extension } from "@codemirror/state";
import { Decoration, EditorView, keymap, lineNumbers, placeholder, WidgetType, type DecorationSet } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { ErrorBody } from "./api";
import type { Completions } from "./types";

export interface Placed {
  from: number;
  to: number;
  error: ErrorBody;
}

export interface EditorOptions {
  text: string;
  onChange: (text: string) => void;
  onRun: () => void;
  onEscape: () => boolean;
}

const language = new Compartment();

export function createEditor(parent: HTMLElement, options: EditorOptions): EditorView {
  return new EditorView({
    parent,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        lineNumbers(),
        history(),
        indentOnInput(),
        bracketMatching(),
        EditorView.lineWrapping,
        placeholder("SELECT * FROM … EMIT CHANGES;"),
        language.of(sql({ upperCaseKeywords: true })),
        autocompletion({ icons: false }),
        // Before the default keys, which would insert a line.
        keymap.of([
          { key: "Mod-Enter", run: () => (options.onRun(), true), preventDefault: true },
          { key: "Tab", run: acceptCompletion },
          ...completionKeymap,
          { key: "Escape", run: options.onEscape },
          ...lintKeymap,
          ...historyKeymap,
          indentWithTab,
          ...defaultKeymap,
        ]),
        EditorView.updateListener.of((update) => update.docChanged && options.onChange(update.state.doc.toString())),
        EditorView.contentAttributes.of({ "aria-label": "SQL", autocapitalize: "off", spellcheck: "false" }),
        explained,
        look,
      ],
    }),
  });
}

/** Teaches the editor the server's words. */
export function teach(view: EditorView, known: Completions): void {
  const dialect = SQLDialect.define({
    keywords: known.keywords.join(" ").toLowerCase(),
    types: "boolean integer int bigint double decimal varchar string bytes date time timestamp array map struct",
    builtin: known.functions.map((one) => one.name).join(" ").toLowerCase(),
    identifierQuotes: "`\"",
    operatorChars: "*+-%<>!=/|",
  });
  const source = dialect.language.data.of({ autocomplete: (context: CompletionContext) => complete(context, known) });
  view.dispatch({ effects: language.reconfigure([dialect.language, source]) });
}

/** Names of sources, their columns (first those of sources that the text mentions), functions, keywords. */
export function complete(context: CompletionContext, known: Completions): CompletionResult | null {
  const dotted = context.matchBefore(/[\w`]+\.\w*$/);
  if (dotted) {
    const [source] = dotted.text.replaceAll("`", "").split(".");
    const found = known.sources.find(({ name }) => name.toLowerCase() === source!.toLowerCase());
    if (found) return { from: dotted.from + dotted.text.indexOf(".") + 1, options: found.columns.map((column) => columnOption(column, found.name, 9)) };
  }
  const word = context.matchBefore(/\w+$/);
  if (!word && !context.explicit) return null;
  const text = context.state.doc.toString().toLowerCase();
  const mentioned = (name: string): boolean => new RegExp(`\\b${name.toLowerCase().replace(/\W/g, "\\$&")}\\b`).test(text);
  const options: Completion[] = [];
  const columns = new Set<string>();
  for (const source of known.sources) {
    options.push({ label: source.name, type: source.kind, detail: source.kind, boost: 5 });
    if (!mentioned(source.name)) continue;
    for (const column of source.columns) {
      if (!columns.has(column.name)) options.push(columnOption(column, source.name, 8));
      columns.add(column.name);
    }
  }
  for (const { name, signature, summary } of known.functions) {
    options.push({ label: name, apply: `${name}(`, detail: signature.slice(name.length), info: summary, type: "function", boost: 1 });
  }
  for (const keyword of known.keywords) options.push({ label: keyword, type: "keyword" });
  return { from: word?.from ?? context.pos, options, validFor: /^\w*$/ };
}

function columnOption(column: { name: string; type: string }, source: string, boost: number): Completion {
  return { label: column.name, type: "column", detail: `${column.type} · ${source}`, boost };
}

/** Underlines errors; those of a run also say underneath what is wrong and what to do. */
export function showErrors(view: EditorView, errors: Placed[], explain: boolean): void {
  const length = view.state.doc.length;
  const inside = errors.map((placed) => ({ ...placed, from: Math.min(placed.from, length), to: Math.min(Math.max(placed.to, placed.from + 1), length) }));
  const diagnostics = inside.map(({ from, to, error }): Diagnostic => ({ from: Math.min(from, to), to, severity: "error", message: words(error) }));
  view.dispatch(setDiagnostics(view.state, diagnostics));
  view.dispatch({ effects: explainEffect.of(explain ? inside : []) });
}

export function hasErrors(state: EditorState): boolean {
  let any = false;
  forEachDiagnostic(state, () => (any = true));
  return any;
}

const words = (error: ErrorBody): string => [error.message, error.detail, error.hint].filter(Boolean).join("\n");

const explainEffect = StateEffect.define<Placed[]>();

class Explanation extends WidgetType {
  constructor(
    readonly error: ErrorBody,
    readonly indent: number,
  ) {
    super();
  }

  override eq(other: Explanation): boolean {
    return words(other.error) === words(this.error) && other.indent === this.indent;
  }

  override toDOM(): HTMLElement {
    const box = document.createElement("div");
    box.className = "cm-explanation";
    box.setAttribute("role", "alert");
    const message = document.createElement("b");
    message.textContent = this.error.message;
    box.append(message);
    for (const text of [this.error.detail, this.error.hint]) {
      if (!text) continue;
      const line = document.createElement("span");
      line.textContent = text;
      box.append(line);
    }
    return box;
  }
}

/** Stays until the line is touched. */
const explained = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(shown, transaction) {
    let next = transaction.docChanged ? Decoration.none : shown;
    for (const effect of transaction.effects) {
      if (!effect.is(explainEffect)) continue;
      next = Decoration.set(
        effect.value.map(({ from, error }) => {
          const line = transaction.state.doc.lineAt(from);
          return Decoration.widget({ widget: new Explanation(error, from - line.from), block: true, side: 1 }).range(line.to);
        }),
        true,
      );
    }
    return next;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const look: Extension = [
  EditorView.theme({
    "&": { fontSize: "var(--size-2)", backgroundColor: "var(--surface)", color: "var(--text)" },
    "&.cm-focused": { outline: "none" },
    ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", minHeight: "150px", maxHeight: "46vh" },
    ".cm-content": { padding: "10px 0", caretColor: "var(--accent)" },
    ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none", paddingLeft: "6px" },
    ".cm-cursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
    "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-content ::selection": { backgroundColor: "var(--accent-soft)" },
    ".cm-placeholder": { color: "var(--muted)" },
    ".cm-matchingBracket": { backgroundColor: "var(--accent-soft)", outline: "none" },
    ".cm-lintRange-error": {
      backgroundImage: "none",
      textDecoration: "underline wavy var(--bad)",
      textDecorationSkipInk: "none",
      textUnderlineOffset: "3px",
    },
    ".cm-tooltip": {
      border: "1px solid var(--line-strong)",
      borderRadius: "6px",
      backgroundColor: "var(--surface)",
      color: "var(--text)",
      boxShadow: "var(--shadow-high)",
      maxWidth: "min(90vw, 560px)",
    },
    ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "280px" },
    ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
    ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--text)" },
    ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
    ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal", marginLeft: "12px" },
    ".cm-completionInfo": { padding: "6px 10px" },
    ".cm-diagnostic": { padding: "6px 12px", borderLeft: "3px solid var(--bad)", whiteSpace: "pre-wrap" },
    ".cm-explanation": {
      margin: "4px 12px 6px 8px",
      padding: "6px 12px",
      borderLeft: "3px solid var(--bad)",
      borderRadius: "0 4px 4px 0",
      backgroundColor: "var(--bad-soft)",
      fontFamily: "var(--font)",
      whiteSpace: "pre-wrap",
    },
    ".cm-explanation b": { display: "block", color: "var(--bad)", fontWeight: "600" },
    ".cm-explanation span": { display: "block" },
  }),
  syntaxHighlighting(
    HighlightStyle.define([
      { tag: tags.keyword, color: "var(--syntax-keyword)", fontWeight: "600" },
      { tag: [tags.string, tags.special(tags.string)], color: "var(--syntax-string)" },
      { tag: [tags.number, tags.bool, tags.null], color: "var(--syntax-number)" },
      { tag: [tags.standard(tags.name), tags.function(tags.name)], color: "var(--syntax-function)" },
      { tag: tags.typeName, color: "var(--syntax-keyword)" },
      { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
    ]),
  ),
];
