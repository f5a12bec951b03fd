/**
 * Server-sent events over fetch: unlike EventSource it can send the key in a header, use POST, and say why it failed.
 *
 * A stream that breaks is continued right after the last event that was handed over (`Last-Event-ID`), so nothing is
 * missing and nothing comes twice as long as the server still holds that position.
 */

export interface ServerEvent {
  id: string | null;
  event: string;
  data: string;
}

/** Turns the text of a stream, in any pieces, into events. */
export class EventParser {
  /** The last id that was read, also of a block without data: the server moves the position on with those. */
  lastId: string | null = null;
  #rest = "";
  #data: string[] = [];
  #event = "";
  #id: string | null = null;

  push(piece: string): ServerEvent[] {
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const line of lines) this.#line(line, events);
    return events;
  }

  #line(line: string, events: ServerEvent[]): void {
    if (line === "") {
      if (this.#id !== null) this.lastId = this.#id;
      if (this.#data.length > 0) {
        events.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
      }
      this.#data = [];
      this.#event = "";
      this.#id = null;
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id") this.#id = value;
  }
}

export async function* readEvents(
  response: Response,
  heard: () => void = () => {},
  moved: (lastId: string | null) => void = () => {},
): AsyncGenerator<ServerEvent> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      yield* parser.push(value);
      moved(parser.lastId);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

export type StreamState =
  | { state: "connecting" }
  | { state: "open" }
  | { state: "waiting"; until: number; why: string }
  | { state: "closed"; why: string };

export interface FollowOptions {
  /** Opens the stream after `lastId` (null: from the start the caller wants). Throws like `api.open`. */
  connect: (lastId: string | null, signal: AbortSignal) => Promise<Response>;
  onEvent: (event: ServerEvent) => void;
  onState?: (state: StreamState) => void;
  /** The server no longer holds the position (410). Return true to begin again without one. */
  onGone?: () => boolean;
  /** Silence that long means a dead connection; the server sends a comment every 15 s. */
  silenceMs?: number;
  after?: string | null;
}

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 5000;

/** A stream that stays open until it is closed. */
export class Follow {
  lastId: string | null;
  #options: FollowOptions;
  #abort = new AbortController();
  #closed = false;
  #wake: (() => void) | null = null;

  constructor(options: FollowOptions) {
    this.#options = options;
    this.lastId = options.after ?? null;
    void this.#run();
  }

  close(): void {
    this.#closed = true;
    this.#abort.abort();
    this.#wake?.();
  }

  /** Tries now instead of at the end of the wait. */
  retryNow(): void {
    this.#wake?.();
  }

  async #run(): Promise<void> {
    let wait = FIRST_WAIT_MS;
    while (!this.#closed) {
      let why = "the stream ended";
      try {
        this.#say({ state: "connecting" });
        await this.#once(() => (wait = FIRST_WAIT_MS));
      } catch (error) {
        const { status = 0, message } = error as { status?: number; message: string };
        if (this.#closed) return;
        if (status === 410 && this.lastId !== null && (this.#options.onGone?.() ?? false)) {
          this.lastId = null;
          continue;
        }
        if (status >= 400 && status < 500 && status !== 408 && status !== 429) {
          this.#closed = true;
          this.#say({ state: "closed", why: message });
          return;
        }
        why = message;
      }
      if (this.#closed) return;
      this.#say({ state: "waiting", until: Date.now() + wait, why });
      await this.#pause(wait);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }

  async #once(opened: () => void): Promise<void> {
    const abort = (this.#abort = new AbortController());
    const silence = this.#options.silenceMs ?? 45_000;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const heard = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(new Error("the server went silent")), silence);
    };
    try {
      heard();
      const response = await this.#options.connect(this.lastId, abort.signal);
      opened();
      this.#say({ state: "open" });
      for await (const event of readEvents(response, heard, (id) => this.#moved(id))) {
        if (this.#closed) return;
        this.#options.onEvent(event);
        this.#moved(event.id);
      }
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
  }

  /** After the event was handed over, never before: a break in between must not lose it. */
  #moved(id: string | null): void {
    if (id !== null && !this.#closed) this.lastId = id;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#wake?.(), ms);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = null;
        resolve();
      };
    });
  }

  #say(state: StreamState): void {
    if (!this.#closed || state.state === "closed") this.#options.onState?.(state);
  }
}
