import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { EventParser, Follow, type ServerEvent, type StreamState } from "../src/lib/sse";

describe("EventParser", () => {
  it("gives the same events however the text is cut", () => {
    const text = ': hello\n\nid: 1-7\nevent: change\ndata: {"a":\ndata: 1}\n\ndata:x\r\n\r\nevent: cut\ndata: {}\n\n';
    const whole = new EventParser().push(text);
    expect(whole).toEqual([
      { id: "1-7", event: "change", data: '{"a":\n1}' },
      { id: null, event: "message", data: "x" },
      { id: null, event: "cut", data: "{}" },
    ]);
    for (let at = 0; at <= text.length; at += 1) {
      const parser = new EventParser();
      expect([...parser.push(text.slice(0, at)), ...parser.push(text.slice(at))]).toEqual(whole);
    }
  });

  it("hands over nothing for comments and blank lines", () => {
    expect(new EventParser().push(": ping\n\n\n: ping\n\nevent: lonely\n\n")).toEqual([]);
  });
});

it("moves on with ids that come without data", () => {
  const parser = new EventParser();
  expect(parser.push("id: 1-5\n:\n\n")).toEqual([]);
  expect(parser.lastId).toBe("1-5");
});

/** A server of one stream: each connection gets the events after the id it names. */
class Server {
  connections: (string | null)[] = [];
  refuse: number | null = null;
  open: ReadableStreamDefaultController<Uint8Array>[] = [];
  events: string[] = [];

  connect = (lastId: string | null, signal: AbortSignal): Promise<Response> => {
    this.connections.push(lastId);
    if (this.refuse !== null) return Promise.reject(Object.assign(new Error(`refused ${this.refuse}`), { status: this.refuse }));
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.open.push(controller);
        signal.addEventListener("abort", () => {
          try {
            controller.error(signal.reason);
          } catch {
            // Closed before.
          }
        });
        for (const id of this.events.slice(lastId === null ? 0 : this.events.indexOf(lastId) + 1)) this.write(controller, id);
      },
    });
    return Promise.resolve(new Response(body));
  };

  send(id: string): void {
    this.events.push(id);
    this.write(this.open.at(-1)!, id);
  }

  drop(): void {
    this.open.at(-1)!.close();
  }

  private write(controller: ReadableStreamDefaultController<Uint8Array>, id: string): void {
    controller.enqueue(new TextEncoder().encode(`id: ${id}\ndata: ${id}\n\n`));
  }
}

describe("Follow", () => {
  let server: Server;
  let got: string[];
  let states: StreamState[];
  let follow: Follow;

  const begin = (more: { after?: string; onGone?: () => boolean; silenceMs?: number } = {}): void => {
    follow = new Follow({
      connect: server.connect,
      onEvent: (event: ServerEvent) => got.push(event.data),
      onState: (state) => states.push(state),
      ...more,
    });
  };

  beforeEach(() => {
    vi.useFakeTimers();
    server = new Server();
    got = [];
    states = [];
  });

  afterEach(() => {
    follow.close();
    vi.useRealTimers();
  });

  it("continues after the last event when the stream ends: no gap, no repeat", async () => {
    begin();
    await vi.advanceTimersByTimeAsync(0);
    server.send("1-1");
    server.send("1-2");
    await vi.advanceTimersByTimeAsync(0);
    server.drop();
    server.events.push("1-3");
    await vi.advanceTimersByTimeAsync(500);
    server.send("1-4");
    await vi.advanceTimersByTimeAsync(0);
    expect(server.connections).toEqual([null, "1-2"]);
    expect(got).toEqual(["1-1", "1-2", "1-3", "1-4"]);
  });

  it("continues after a position that no event had", async () => {
    begin();
    await vi.advanceTimersByTimeAsync(0);
    server.events = ["1-1", "1-2"];
    server.open.at(-1)!.enqueue(new TextEncoder().encode("id: 1-1\n:\n\n"));
    await vi.advanceTimersByTimeAsync(0);
    server.drop();
    await vi.advanceTimersByTimeAsync(500);
    expect(server.connections).toEqual([null, "1-1"]);
    expect(got).toEqual(["1-2"]);
  });

  it("begins after the id it is given", async () => {
    server.events = ["1-1", "1-2"];
    begin({ after: "1-1" });
    await vi.advanceTimersByTimeAsync(0);
    expect(got).toEqual(["1-2"]);
  });

  it("waits longer and longer for a server that is away, and at once when told to", async () => {
    server.refuse = 503;
    begin();
    await vi.advanceTimersByTimeAsync(400 + 800 + 1600 + 10);
    expect(server.connections).toHaveLength(4);
    const last = states.at(-1)!;
    expect(last.state === "waiting" && last.until - Date.now()).toBeGreaterThan(3000);
    server.refuse = null;
    follow.retryNow();
    await vi.advanceTimersByTimeAsync(0);
    expect(states.at(-1)).toEqual({ state: "open" });
  });

  it("gives up, saying why, where trying again cannot help", async () => {
    server.refuse = 404;
    begin();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(server.connections).toHaveLength(1);
    expect(states.at(-1)).toEqual({ state: "closed", why: "refused 404" });
  });

  it("starts over when the position is gone and the caller agrees", async () => {
    server.refuse = 410;
    begin({
      after: "1-9",
      onGone: () => {
        server.refuse = null;
        return true;
      },
    });
    await vi.advanceTimersByTimeAsync(0);
    expect(server.connections).toEqual(["1-9", null]);
    expect(states.at(-1)).toEqual({ state: "open" });
  });

  it("takes silence for a dead connection", async () => {
    begin({ silenceMs: 1000 });
    await vi.advanceTimersByTimeAsync(0);
    server.send("1-1");
    await vi.advanceTimersByTimeAsync(999);
    expect(server.connections).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1000);
    expect(server.connections).toEqual([null, "1-1"]);
  });

  it("hands over nothing once closed", async () => {
    begin();
    await vi.advanceTimersByTimeAsync(0);
    follow.close();
    server.events.push("1-1");
    await vi.advanceTimersByTimeAsync(10_000);
    expect(got).toEqual([]);
    expect(server.connections).toHaveLength(1);
  });
});
