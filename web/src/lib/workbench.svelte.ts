/** Runs what is typed: statements in order, queries as answers, push queries as rows that keep coming. */

import { api, ApiError, call, open, parseJson, post, type ErrorBody } from "./api";
import { plural } from "./format";
import { lastIncluded } from "./rows";
import { errorRange, steps, type Step } from "./sql";
import { readEvents } from "./sse";
import type { Answer, Column, StatementResult, Value } from "./types";

const SHOWN = 1000;
const LIVE_KEPT = 500;

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
    const note = `${plural(answer.rows.length, "row")}${answer.truncated ? ` (the first; there are more)` : ""} in ${answer.took_ms.toFixed(1)} ms${fresh}`;
    this.#add({ sql: step.text, kind: "rows", columns: answer.columns, rows: numbered(answer.rows), note, total: answer.rows.length });
  }

  /** The results of those that ran before the one that failed are still results. */
  async #statements(step: Step, signal: AbortSignal): Promise<Failure | null> {
    const response = await fetchAnswer(step.text, signal);
    for (const result of response.results ?? []) this.#addStatement(result);
    return response.error ? this.#fail(step, response.error) : null;
  }

  #addStatement(result: StatementResult): void {
    const queryId = result.query_id ?? null;
    const sql = result.statement;
    const note = result.message ?? "";
    if (result.columns && result.rows) {
      this.#add({ sql, kind: "rows", columns: result.columns, rows: numbered(result.rows), note: note || plural(result.rows.length, "row"), total: result.rows.length, queryId });
    } else if (result.text) this.#add({ sql, kind: "text", text: result.text, note, queryId });
    else this.#add({ sql, kind: "said", note: note || result.kind, queryId });
  }

  async #push(step: Step, signal: AbortSignal): Promise<Failure | null> {
    const response = await open("/v1/query", { ...post({ sql: step.text }, signal), headers: { "Content-Type": "application/json", Accept: "text/event-stream" } });
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
    const whole: Result = { id: (this.#next += 1), columns: [], rows: [], note: "", text: "", queryId: null, error: null, streaming: false, total: 0, ...result };
    this.results = [...this.results, whole];
    return whole;
  }

  #replace(id: number, change: Partial<Result>): void {
    this.results = this.results.map((result) => (result.id === id ? { ...result, ...change } : result));
  }
}

function numbered(rows: Value[][]): ResultRow[] {
  return rows.map((cells, at) => ({ id: String(at), cells }));
}

/** A failed statement's answer has a status of its own and still carries the results before it. */
async function fetchAnswer(sql: string, signal: AbortSignal): Promise<{ results?: StatementResult[]; error?: ErrorBody }> {
  try {
    return await api.statements(sql, signal);
  } catch (error) {
    if (!(error instanceof ApiError) || signal.aborted) throw error;
    return { results: error.results, error: error.body };
  }
}
