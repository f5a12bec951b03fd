/** Series of numbers over time: a ring that forgets, and a thinning that keeps the peaks. */

export interface Points {
  xs: number[];
  ys: (number | null)[];
}

/** The last `capacity` points. */
export class Ring {
  #xs: Float64Array;
  #ys: Float64Array;
  #next = 0;
  #size = 0;

  constructor(readonly capacity: number) {
    this.#xs = new Float64Array(capacity);
    this.#ys = new Float64Array(capacity);
  }

  push(x: number, y: number): void {
    this.#xs[this.#next] = x;
    this.#ys[this.#next] = y;
    this.#next = (this.#next + 1) % this.capacity;
    this.#size = Math.min(this.#size + 1, this.capacity);
  }

  get size(): number {
    return this.#size;
  }

  get last(): number | null {
    return this.#size === 0 ? null : this.#ys[(this.#next - 1 + this.capacity) % this.capacity]!;
  }

  points(): Points {
    const first = (this.#next - this.#size + this.capacity) % this.capacity;
    const at = (i: number): number => (first + i) % this.capacity;
    return {
      xs: Array.from({ length: this.#size }, (_, i) => this.#xs[at(i)]!),
      ys: Array.from({ length: this.#size }, (_, i) => this.#ys[at(i)]!),
    };
  }
}

/**
 * At most about `limit` points: of each bucket its lowest and its highest, in their order. A spike of one point
 * survives, which an average or every n-th point would lose.
 */
export function downsample({ xs, ys }: Points, limit: number): Points {
  if (xs.length <= limit || limit < 4) return { xs, ys };
  const buckets = Math.floor((limit - 2) / 2);
  const inner = xs.length - 2;
  const kept = [0];
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const from = 1 + Math.floor((bucket * inner) / buckets);
    const to = 1 + Math.floor(((bucket + 1) * inner) / buckets);
    kept.push(...extremes(ys, from, to));
  }
  kept.push(xs.length - 1);
  return { xs: kept.map((i) => xs[i]!), ys: kept.map((i) => ys[i]!) };
}

function extremes(ys: (number | null)[], from: number, to: number): number[] {
  let low = -1;
  let high = -1;
  let gap = -1;
  for (let i = from; i < to; i += 1) {
    const y = ys[i];
    if (y === null || y === undefined) gap = i;
    else {
      if (low < 0 || y < ys[low]!) low = i;
      if (high < 0 || y > ys[high]!) high = i;
    }
  }
  // A bucket with a hole keeps one, so that a line does not bridge it.
  const found = [low, high, gap].filter((i) => i >= 0).sort((a, b) => a - b);
  return found.filter((i, at) => i !== found[at - 1]);
}

/** Round steps for an axis: 1, 2 or 5 times a power of ten. */
export function ticks(low: number, high: number, about: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power;
  const found: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

const STEPS_MS = [1, 2, 5, 10, 15, 30].map((s) => s * 1000)
  .concat([1, 2, 5, 10, 15, 30].map((m) => m * 60_000))
  .concat([1, 2, 3, 6, 12].map((h) => h * 3_600_000))
  .concat([1, 2, 7, 14, 30, 90, 365].map((d) => d * 86_400_000));

/** Round moments for a time axis, in the reader's zone. */
export function timeTicks(low: number, high: number, about: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, about);
  const step = STEPS_MS.find((size) => size >= rough) ?? STEPS_MS.at(-1)!;
  const zone = -new Date(low).getTimezoneOffset() * 60_000;
  const found: number[] = [];
  for (let t = Math.ceil((low + zone) / step) * step - zone; t <= high; t += step) found.push(t);
  return found;
}
