/** The overview, once a second, and what it was over the last ten minutes. Shared by all rooms. */

import { api, open } from "./api";
import { Ring, type Points } from "./series";
import { openStream, type LiveStream } from "./streams.svelte";
import type { NodeState, Overview, RatesHistory, TopologyNode } from "./types";

const KEPT_SECONDS = 600;

class Live {
  overview = $state.raw<Overview | null>(null);
  /** When the last overview came, by this computer's clock. */
  heard = $state(0);
  #recalled = $state(0);
  #rates = new Map<string, Ring>();
  #stream = $state.raw<LiveStream | null>(null);

  start(): void {
    // What was before the page was opened; without it, charts begin now.
    api.history().then((past) => this.recall(past), () => undefined);
    this.#stream = openStream({
      connect: (_, signal) => open("/v1/overview/live", { signal, headers: { Accept: "text/event-stream" } }),
      onEvent: (event) => {
        if (event.event === "overview") this.take(JSON.parse(event.data) as Overview, Date.now());
      },
    });
  }

  stop(): void {
    this.#stream?.close();
  }

  take(overview: Overview, now: number): void {
    this.#keep("total", now, overview.totals.rate);
    for (const node of overview.nodes) this.#keep(node.id, now, node.rate);
    this.overview = overview;
    this.heard = now;
  }

  /** Put the server's memory before what this page has seen by itself. */
  recall(past: RatesHistory): void {
    for (const [id, ys] of Object.entries(past.rates)) {
      const seen = this.#rates.get(id)?.points() ?? { xs: [], ys: [] };
      const ring = new Ring(KEPT_SECONDS);
      const since = seen.xs[0] ?? Infinity;
      past.times_ms.forEach((at, i) => at < since && ring.push(at, ys[i]!));
      seen.xs.forEach((at, i) => ring.push(at, seen.ys[i] ?? 0));
      this.#rates.set(id, ring);
    }
    this.#recalled += 1;
  }

  get connection() {
    return this.#stream?.state ?? { state: "connecting" as const };
  }

  retryNow(): void {
    this.#stream?.retryNow();
  }

  /** The rate of a node (`topic:pageviews`), or of everything that arrives (`total`). */
  rates(id: string): Points {
    void this.heard;
    void this.#recalled;
    return this.#rates.get(id)?.points() ?? { xs: [], ys: [] };
  }

  node(id: string): TopologyNode | null {
    return this.overview?.nodes.find((node) => node.id === id) ?? null;
  }

  of(kind: TopologyNode["kind"], ...states: NodeState[]): TopologyNode[] {
    const nodes = this.overview?.nodes.filter((node) => node.kind === kind) ?? [];
    return states.length > 0 ? nodes.filter((node) => states.includes(node.state)) : nodes;
  }

  #keep(id: string, now: number, rate: number): void {
    let ring = this.#rates.get(id);
    if (!ring) this.#rates.set(id, (ring = new Ring(KEPT_SECONDS)));
    ring.push(now, rate);
  }
}

export const live = new Live();
