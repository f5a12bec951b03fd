/**
 * A view's rows, read once and then followed: the answer says which arrival number it includes, and the feed continues
 * right after it, so nothing falls between the two.
 */

import { api, open, parseJson } from "./api";
import { idAfter, LiveRows, type LiveRow } from "./rows";
import { openStream, type LiveStream } from "./streams.svelte";
import type { StreamState } from "./sse";
import type { Change, Column, View } from "./types";
import { chartable, type Chartable } from "./windows";

const READ = 1000;
const DRAW_MS = 250;

export interface Order {
  column: string;
  down: boolean;
}

export class ViewFeed {
  columns = $state.raw<Column[]>([]);
  rows = $state.raw<LiveRow[]>([]);
  state = $state.raw<StreamState>({ state: "connecting" });
  error = $state.raw<Error | null>(null);
  loaded = $state(false);
  paused = $state(false);
  waiting = $state(0);
  changesPerSecond = $state(0);
  chartable = $state.raw<Chartable>({ values: [], keys: [], windowStart: null });
  order: Order | null;

  #view: View;
  #held: LiveRows | null = null;
  #stream: LiveStream | null = null;
  #timer: ReturnType<typeof setInterval>;
  #dirty = false;
  #turn = 0;
  #seen: number[] = [];

  constructor(view: View) {
    this.#view = view;
    this.order = firstOrder(view);
    this.#timer = setInterval(() => this.#draw(), DRAW_MS);
    void this.#load();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#turn += 1;
    this.#stream?.close();
  }

  pause(): void {
    this.paused = !this.paused;
    this.waiting = 0;
    this.#draw();
  }

  /** With more rows than are held, `total` of them, another order needs other rows. */
  reorder(order: Order, total: number): void {
    this.order = order;
    if (total > this.rows.length) void this.#load();
  }

  async #load(): Promise<void> {
    const turn = (this.#turn += 1);
    const parameters: Record<string, string> = { limit: String(READ) };
    if (this.order) parameters["order"] = (this.order.down ? "-" : "") + this.order.column;
    try {
      const answer = await api.rows(this.#view.name, parameters);
      if (turn !== this.#turn) return;
      const keys = this.#view.columns.filter((column) => column.key).map((column) => column.name);
      this.#held = new LiveRows(answer, keys);
      this.columns = answer.columns;
      this.chartable = chartable(answer.columns, keys);
      this.error = null;
      this.loaded = true;
      this.#dirty = true;
      this.#draw();
      this.#follow(idAfter(answer));
    } catch (error) {
      if (turn !== this.#turn) return;
      this.error = error as Error;
      setTimeout(() => turn === this.#turn && void this.#load(), 2000);
    }
  }

  #follow(after: string | null): void {
    this.#stream?.close();
    const path = `/v1/views/${encodeURIComponent(this.#view.name)}/feed`;
    this.#stream = openStream({
      after,
      connect: (lastId, signal) => {
        const headers: Record<string, string> = { Accept: "text/event-stream" };
        if (lastId !== null) headers["Last-Event-ID"] = lastId;
        return open(path, { signal, headers });
      },
      onEvent: (event) => event.event === "change" && this.#take(parseJson(event.data) as Change),
      onState: (state) => (this.state = state),
      // The log no longer holds the position, or the version has changed: read the rows again.
      onGone: () => {
        void this.#load();
        return false;
      },
    });
  }

  #take(change: Change): void {
    this.#held?.apply(change);
    this.#dirty = true;
    this.#seen.push(Date.now());
    if (this.paused) this.waiting += 1;
  }

  #draw(): void {
    const since = Date.now() - 5000;
    this.#seen = this.#seen.filter((at) => at > since);
    this.changesPerSecond = this.#seen.length / 5;
    if (!this.#dirty || this.paused || !this.#held) return;
    this.#dirty = false;
    this.rows = this.#held.all();
  }
}

/** The newest windows first; without windows, the largest of the first number. */
function firstOrder(view: View): Order | null {
  const keys = view.columns.filter((column) => column.key).map((column) => column.name);
  const { windowStart, values } = chartable(view.columns, keys);
  if (windowStart) return { column: windowStart, down: true };
  if (view.window) return { column: "windowstart", down: true };
  return values[0] ? { column: values[0], down: true } : null;
}
