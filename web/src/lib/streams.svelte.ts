/** Streams and polls that live as long as the component that asks for them, and rest while nobody looks. */

import { Follow, type FollowOptions, type StreamState } from "./sse";

/**
 * A hidden tab gives its connections back after a while: a browser has six for a server over HTTP/1, over all tabs
 * together, so three forgotten tabs would stop the fourth. Coming back continues after the last event.
 */
const HIDDEN_MS = 20_000;

export interface LiveStream {
  readonly state: StreamState;
  readonly lastId: string | null;
  retryNow(): void;
  close(): void;
}

export function openStream(options: FollowOptions): LiveStream {
  let state = $state.raw<StreamState>({ state: "connecting" });
  let lastId = $state<string | null>(options.after ?? null);
  const onState = (next: StreamState): void => {
    state = next;
    options.onState?.(next);
  };
  const onEvent: FollowOptions["onEvent"] = (event) => {
    if (event.id !== null) lastId = event.id;
    options.onEvent(event);
  };
  const begin = (after: string | null): Follow => new Follow({ ...options, onState, onEvent, after });
  let follow: Follow | null = begin(options.after ?? null);
  let resting: ReturnType<typeof setTimeout> | undefined;
  const seen = (): void => {
    clearTimeout(resting);
    if (document.hidden) {
      resting = setTimeout(() => {
        if (follow) lastId = follow.lastId;
        follow?.close();
        follow = null;
      }, HIDDEN_MS);
    } else if (!follow) follow = begin(lastId);
  };
  document.addEventListener("visibilitychange", seen);
  return {
    get state() {
      return state;
    },
    get lastId() {
      return lastId;
    },
    retryNow: () => follow?.retryNow(),
    close() {
      clearTimeout(resting);
      document.removeEventListener("visibilitychange", seen);
      follow?.close();
      follow = null;
    },
  };
}

export interface Polled<T> {
  readonly value: T | null;
  readonly error: Error | null;
  refresh(): void;
}

/**
 * Asks again every `everyMs` while the page is seen. The key is what is asked about: another one starts over. Call it
 * while a component is set up.
 */
export function poll<K, T>(key: () => K, ask: (key: K) => Promise<T>, everyMs = 2000): Polled<T> {
  let value = $state.raw<T | null>(null);
  let error = $state.raw<Error | null>(null);
  let again = $state(0);
  let shown: K | undefined;
  $effect(() => {
    const current = key();
    void again;
    if (current !== shown) {
      shown = current;
      value = null;
      error = null;
    }
    let ended = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async (): Promise<void> => {
      if (!document.hidden) {
        try {
          const answer = await ask(current);
          if (ended) return;
          value = answer;
          error = null;
        } catch (problem) {
          if (ended) return;
          error = problem as Error;
        }
      }
      timer = setTimeout(() => void turn(), everyMs);
    };
    void turn();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  });
  return {
    get value() {
      return value;
    },
    get error() {
      return error;
    },
    refresh: () => (again += 1),
  };
}
