import { afterEach, describe, expect, it, vi } from "vitest";
import { errorFromText } from "../src/lib/api";
import { forget, load, remember } from "../src/lib/history";
import { listen } from "../src/lib/keyboard";
import { live } from "../src/lib/live.svelte";
import { sample } from "../src/lib/metrics";
import { href, nodeHref, parseRoute } from "../src/lib/router.svelte";
import { session } from "../src/lib/session.svelte";
import type { Overview } from "../src/lib/types";

class Shelf {
  kept = new Map<string, string>();
  getItem = (key: string): string | null => this.kept.get(key) ?? null;
  setItem = (key: string, value: string): void => void this.kept.set(key, value);
  removeItem = (key: string): void => void this.kept.delete(key);
}

afterEach(() => vi.unstubAllGlobals());

describe("addresses", () => {
  it("lead there and back, whatever a name holds", () => {
    for (const name of ["pageviews", "a/b", "ü ?&#%", "_late.CTAS_X_1"]) {
      expect(parseRoute(href("log", name))).toMatchObject({ room: "log", name });
    }
    expect(parseRoute(href("sql", null, { q: "SELECT 'a&b';" })).parameters.get("q")).toBe("SELECT 'a&b';");
    expect(parseRoute("")).toMatchObject({ room: "overview", name: null });
    expect(parseRoute("#/nowhere")).toMatchObject({ room: "unknown" });
    expect(parseRoute("#/log/%E0%A4%A")).toMatchObject({ room: "unknown" });
    expect(nodeHref({ kind: "query", name: "CTAS_X_1" })).toBe("#/queries/CTAS_X_1");
  });
});

describe("the history of statements", () => {
  it("has the newest first, each once, and at most a hundred", () => {
    const shelf = new Shelf();
    for (let i = 0; i < 120; i += 1) remember(shelf, { sql: `SELECT ${i};`, at: i, ok: true });
    remember(shelf, { sql: "SELECT 50;", at: 200, ok: false });
    const kept = load(shelf);
    expect(kept).toHaveLength(100);
    expect(kept[0]).toEqual({ sql: "SELECT 50;", at: 200, ok: false });
    expect(kept.filter((entry) => entry.sql === "SELECT 50;")).toHaveLength(1);
    forget(shelf);
    expect(load(shelf)).toEqual([]);
  });

  it("survives a damaged or full shelf", () => {
    const shelf = new Shelf();
    shelf.setItem("headrace.sql.history", "{broken");
    expect(load(shelf)).toEqual([]);
    shelf.setItem = () => {
      throw new Error("full");
    };
    expect(remember(shelf, { sql: "SELECT 1;", at: 1, ok: true })).toHaveLength(1);
  });
});

describe("keys", () => {
  const press = (target: EventTarget, key: string, more: object = {}): void => {
    target.dispatchEvent(Object.assign(new Event("keydown", { cancelable: true }), { key, ...more }));
  };

  it("work alone and after g, but not with Ctrl and not too late", () => {
    const target = new EventTarget();
    const pressed: string[] = [];
    let now = 0;
    const silence = listen({ s: () => pressed.push("s"), "g s": () => pressed.push("g s"), "g l": () => pressed.push("g l") }, target, () => now);
    press(target, "s");
    press(target, "g");
    press(target, "l");
    press(target, "g");
    now += 5000;
    press(target, "s");
    press(target, "s", { ctrlKey: true });
    press(target, "g");
    press(target, "s");
    expect(pressed).toEqual(["s", "g l", "s", "g s"]);
    silence();
    press(target, "s");
    expect(pressed).toHaveLength(4);
  });
});

describe("the overview", () => {
  it("remembers each node's rate", () => {
    const overview = (rate: number): Overview => ({
      project: "p",
      version: "1",
      uptime_s: 1,
      nodes: [{ id: "topic:a", kind: "topic", name: "a", rate, state: "ok", message: null }],
      edges: [],
      totals: { events: 1, rate: rate * 2, dead_letters: 0, open_dead_letters: 0, late_rows: 0, bytes: 0, alerts: 0 },
      engine: { state: "running", pid: 1 },
    });
    live.take(overview(1), 1000);
    live.take(overview(2), 2000);
    expect(live.rates("topic:a")).toEqual({ xs: [1000, 2000], ys: [1, 2] });
    expect(live.rates("total").ys).toEqual([2, 4]);
    expect(live.rates("nothing")).toEqual({ xs: [], ys: [] });
    expect(live.of("topic", "failed")).toEqual([]);
    expect(live.node("topic:a")?.rate).toBe(2);
    live.recall({ times_ms: [400, 700, 1500], rates: { "topic:a": [8, 9, 7], "topic:b": [0, 0, 5] } });
    expect(live.rates("topic:a")).toEqual({ xs: [400, 700, 1000, 2000], ys: [8, 9, 1, 2] });
    expect(live.rates("topic:b").ys).toEqual([0, 0, 5]);
    expect(live.heard).toBe(2000);
  });
});

describe("the key", () => {
  it("is waited for, and not asked for twice", async () => {
    vi.stubGlobal("sessionStorage", new Shelf());
    const first = session.ask(null, null);
    const second = session.ask(null, null);
    expect(session.asking).toBe(true);
    session.give("secret");
    await Promise.all([first, second]);
    expect([session.asking, session.key]).toEqual([false, "secret"]);
    // A request that was refused with the old key must not ask again.
    await session.ask(null, null);
    expect(session.asking).toBe(false);
    void session.ask("secret", null);
    expect([session.asking, session.refused]).toEqual([true, true]);
  });

  it("is no longer waited for by who went away", async () => {
    const abort = new AbortController();
    const waiting = session.ask(session.key, abort.signal);
    abort.abort(new Error("left"));
    await expect(waiting).rejects.toThrow("left");
  });
});

it("makes an error of whatever a server answers", () => {
  const ours = errorFromText(400, '{"error":{"code":"sql","message":"no","hint":"try","line":1},"results":[{"statement":"a","kind":"text"}]}');
  expect([ours.status, ours.message, ours.hint, ours.results.length]).toEqual([400, "no", "try", 1]);
  expect(errorFromText(502, "<html>Bad gateway</html>").message).toBe("the server answered 502");
});

it("reads numbers out of metrics", () => {
  const text = '# HELP x y\nheadrace_feed_clients{kind="feed"} 2.0\nheadrace_feed_clients{kind="tail"} 1.0\nheadrace_feed_clients_total 9\n';
  expect(sample(text, "headrace_feed_clients", { kind: "feed" })).toBe(2);
  expect(sample(text, "headrace_feed_clients")).toBe(3);
  expect(sample(text, "missing")).toBeNull();
});
