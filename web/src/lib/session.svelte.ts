/** The API key: asked for when the server wants one, kept for this tab only. */

const STORED = "headrace.key";

class Session {
  key = $state<string | null>(globalThis.sessionStorage?.getItem(STORED) ?? null);
  asking = $state(false);
  /** The last key was refused. */
  refused = $state(false);
  #waiting: (() => void)[] = [];

  /** Resolves once there is another key than the one that was refused. */
  ask(refused: string | null, signal: AbortSignal | null): Promise<void> {
    if (this.key !== refused) return Promise.resolve();
    this.asking = true;
    this.refused = refused !== null;
    return new Promise((resolve, reject) => {
      this.#waiting.push(resolve);
      signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
    });
  }

  give(key: string): void {
    this.key = key;
    this.asking = false;
    sessionStorage.setItem(STORED, key);
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  forget(): void {
    this.key = null;
    sessionStorage.removeItem(STORED);
  }
}

export const session = new Session();
