/** Runs what is typed: statements in order, queries as answers, push queries as rows that keep coming. */

import { api, ApiError, call, open, parseJson, post, type ErrorBody } from "./api";
import { plural } from "./format";
import { lastIncluded, pastSays } from "./rows";
import { errorRange, printingOf, settingOf, steps, type Step } from "./sql";
import { readEvents } from "./sse";
import type { Answer, Column, PlanStep, StatementResult, TopicEvent, Value } from "./types";

const SHOWN = 1000;
const LIVE_KEPT = 500;
const FROM = "auto.offset.reset";
const WAIT_S = 20;

export interface ResultRow {
  id: string;
  cells: Value[];
}

export interface Result {
  id: number;
  sql: string;
  kind: "rows" | "live" | "said" | "text" | "error";
  columns: Column[];
  rows: ResultRow[];
  /** In words: how many, how long, how fresh. */
  note: string;
  text: string;
  plan: PlanStep | null;
  queryId: string | null;
  error: ErrorBody | null;
  streaming: boolean;
  total: number;
}

export interface Failure {
  from: number;
  to: number;
  error: ErrorBody;
}

export class Workbench {
  results = $state.raw<Result[]>([]);
  running = $state(false);
  /** Of SET, for what follows. */
  settings = $state<Record<string, string>>({});
  #abort: AbortController | null = null;
  #next = 0;

  /**
   * Runs the text, which begins at `offset` of the editor's. Returns where it failed, if it did. All of it is checked
   * before any of it runs: a mistake in the third statement should not leave the first two behind.
   */
  async run(text: string, offset: number): Promise<Failure | null> {
    this.stop();
    const abort = (this.#abort = new AbortController());
    this.running = true;
    this.results = [];
    try {
      const mistake = await this.#check(text, offset, abort.signal);
      if (mistake || abort.signal.aborted) return mistake;
      for (const step of steps(text, offset)) {
        const failure = await this.#step(step, abort.signal);
        if (failure) return failure;
        if (abort.signal.aborted) return null;
      }
      return null;
    } finally {
      if (this.#abort === abort) {
        this.running = false;
        this.#abort = null;
      }
    }
  }

  get fromBeginning(): boolean {
    return this.settings[FROM]?.toLowerCase() === "earliest";
  }

  set fromBeginning(wanted: boolean) {
    this.#set(FROM, wanted ? "earliest" : null);
  }

  #set(name: string, value: string | null): void {
    const { [name]: _, ...others } = this.settings;
    this.settings = value === null ? others : { ...others, [name]: value };
  }

  stop(): void {
    this.#abort?.abort();
    this.#abort = null;
    this.running = false;
  }

  async #check(text: string, offset: number, signal: AbortSignal): Promise<Failure | null> {
    const verdict = await api.validate(text, signal).catch(() => null);
    return verdict?.error ? this.#fail({ kind: "statements", text, start: offset }, verdict.error) : null;
  }

  async #step(step: Step, signal: AbortSignal): Promise<Failure | null> {
    try {
      if (step.kind === "statements") return await this.#statements(step, signal);
      if (step.kind === "push") return await this.#push(step, signal);
      if (step.kind === "print") return await this.#print(step, signal);
      if (step.kind === "set") return await this.#setting(step, signal);
      await this.#pull(step, signal);
      return null;
    } catch (error) {
      if (signal.aborted) return null;
      return this.#fail(step, error instanceof ApiError ? error.body : { code: "error", message: (error as Error).message });
    }
  }

  /** An error with a place is shown there; one without is a result. */
  #fail(step: Step, error: ErrorBody): Failure {
    if (!error.line) this.#add({ sql: step.text, kind: "error", error });
    return { ...errorRange(step.text, error, step.start), error };
  }

  async #pull(step: Step, signal: AbortSignal): Promise<void> {
    const answer = await call<Answer>("/v1/query", post({ sql: step.text, limit: SHOWN }, signal));
    const fresh = answer.through ? `, up to arrival ${lastIncluded(answer.through)}` : "";
    const note = `${plural(answer.rows.length, "row")}${answer.truncated ? ` (the first; there are more)` : ""} in ${answer.took_ms.toFixed(1)} ms${fresh}${pastSays(answer.reads)}`;
    this.#add({ sql: step.text, kind: "rows", columns: answer.columns, rows: numbered(answer.rows), note, total: answer.rows.length });
  }

  /** Kept here and sent with what follows; the server is asked so that it can refuse. */
  async #setting(step: Step, signal: AbortSignal): Promise<Failure | null> {
    const failure = await this.#statements(step, signal);
    const said = settingOf(step.text);
    if (!failure && said) this.#set(...said);
    return failure;
  }

  /** A topic's records as they come. */
  async #print(step: Step, signal: AbortSignal): Promise<Failure | null> {
    const wanted = printingOf(step.text);
    if (!wanted) return this.#statements(step, signal);
    const columns: Column[] = [["partition", "INTEGER"], ["offset", "BIGINT"], ["time", "VARCHAR"], ["key", "VARCHAR"], ["value", "VARCHAR"]].map(([name, type]) => ({ name: name!, type: type! }));
    const result = this.#add({ sql: step.text, kind: "live", columns, note: "waiting for records…", streaming: true });
    let at: Record<string, string> = { from: wanted.fromBeginning || this.fromBeginning ? "earliest" : "latest" };
    let rows: ResultRow[] = [];
    let [seen, shown] = [0, 0];
    try {
      while (!signal.aborted && shown < (wanted.limit ?? Infinity)) {
        const query = new URLSearchParams({ ...at, limit: "200", wait: String(WAIT_S) });
        const page = await call<{ records: TopicEvent[]; next: string }>(`/v1/topics/${encodeURIComponent(wanted.topic)}/records?${query}`, { signal });
        const kept = page.records.filter((_, n) => (seen + n) % wanted.interval === 0).slice(0, (wanted.limit ?? Infinity) - shown);
        for (const record of kept) rows.push({ id: `${record.partition}:${record.offset}`, cells: [record.partition, record.offset, iso(record.time_ms), record.key as Value, record.value as Value] });
        [seen, shown, rows] = [seen + page.records.length, shown + kept.length, rows.slice(-LIVE_KEPT)];
        this.#replace(result.id, { rows: rows.toReversed(), total: shown, note: `${plural(shown, "record")} so far` });
        at = { at: page.next };
      }
    } finally {
      this.#replace(result.id, { streaming: false, note: `${plural(shown, "record")}, ${signal.aborted ? "stopped" : "complete"}` });
    }
    return null;
  }

  /** The results of those that ran before the one that failed are still results. */
  async #statements(step: Step, signal: AbortSignal): Promise<Failure | null> {
    const response = await fetchAnswer(step.text, this.settings, signal);
    for (const result of response.results ?? []) this.#addStatement(result);
    return response.error ? this.#fail(step, response.error) : null;
  }

  #addStatement(result: StatementResult): void {
    const queryId = result.query_id ?? null;
    const sql = result.statement;
    const note = result.message ?? "";
    if (result.columns && result.rows) {
      this.#add({ sql, kind: "rows", columns: result.columns, rows: numbered(result.rows), note: note || plural(result.rows.length, "row"), total: result.rows.length, queryId, text: result.text ?? "" });
    } else if (result.text) this.#add({ sql, kind: "text", text: result.text, plan: result.plan ?? null, note, queryId });
    else this.#add({ sql, kind: "said", note: note || result.kind, queryId });
  }

  async #push(step: Step, signal: AbortSignal): Promise<Failure | null> {
    const response = await open("/v1/query", { ...post({ sql: step.text, settings: this.settings }, signal), headers: { "Content-Type": "application/json", Accept: "text/event-stream" } });
    const result = this.#add({ sql: step.text, kind: "live", note: "waiting for rows…", streaming: true });
    let rows: ResultRow[] = [];
    let total = 0;
    let columns: Column[] = [];
    let queryId: string | null = null;
    let changed = false;
    let ended = "";
    const draw = (): void => {
      if (!changed) return;
      changed = false;
      this.#replace(result.id, { columns, rows: rows.toReversed(), total, queryId, note: `${plural(total, "row")} so far${total > LIVE_KEPT ? `, the newest ${LIVE_KEPT} shown` : ""}` });
    };
    const timer = setInterval(draw, 200);
    let failed: ErrorBody | null = null;
    try {
      for await (const { event, data } of readEvents(response)) {
        const body = parseJson(data) as { columns?: Column[]; query_id?: string; row?: Value[]; reason?: string; error?: ErrorBody } & Partial<ErrorBody>;
        if (event === "header") [columns, queryId, changed] = [body.columns ?? [], body.query_id ?? null, true];
        else if (event === "row") {
          total += 1;
          changed = true;
          rows.push({ id: String(total), cells: body.row ?? [] });
          if (rows.length > LIVE_KEPT * 2) rows = rows.slice(-LIVE_KEPT);
        } else if (event === "end") ended = body.reason ?? "";
        else if (event === "error") failed = body.error ?? (body as ErrorBody);
      }
    } catch (error) {
      if (!signal.aborted) ended = `the connection was lost: ${(error as Error).message}`;
    } finally {
      clearInterval(timer);
      rows = rows.slice(-LIVE_KEPT);
      changed = true;
      draw();
    }
    const why = signal.aborted ? "stopped" : ended === "limit" ? "complete" : ended || "ended";
    // The query is gone with its stream.
    this.#replace(result.id, { streaming: false, queryId: null, note: `${plural(total, "row")}, ${why}` });
    return failed ? this.#fail(step, failed) : null;
  }

  #add(result: Partial<Result> & Pick<Result, "sql" | "kind">): Result {
    const whole: Result = { id: (this.#next += 1), columns: [], rows: [], note: "", text: "", plan: null, queryId: null, error: null, streaming: false, total: 0, ...result };
    this.results = [...this.results, whole];
    return whole;
  }

  #replace(id: number, change: Partial<Result>): void {
    this.results = this.results.map((result) => (result.id === id ? { ...result, ...change } : result));
  }
}

function iso(time: number): string {
  return new Date(time).toISOString();
}

function numbered(rows: Value[][]): ResultRow[] {
  return rows.map((cells, at) => ({ id: String(at), cells }));
}

/** A failed statement's answer has a status of its own and still carries the results before it. */
async function fetchAnswer(sql: string, settings: Record<string, string>, signal: AbortSignal): Promise<{ results?: StatementResult[]; error?: ErrorBody }> {
  try {
    return await api.statements(sql, signal, settings);
  } catch (error) {
    if (!(error instanceof ApiError) || signal.aborted) throw error;
    return { results: error.results, error: error.body };
  }
}
