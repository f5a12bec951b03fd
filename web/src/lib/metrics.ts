/** Reads single numbers out of Prometheus' text. */

/** The sum of a metric's samples whose labels contain all of `labels`; null if there is none. */
export function sample(text: string, name: string, labels: Record<string, string> = {}): number | null {
  let sum: number | null = null;
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!match || match[1] !== name) continue;
    const has = Object.entries(labels).every(([label, value]) => match[2]?.includes(`${label}="${value}"`));
    const value = Number(match[3]);
    if (has && Number.isFinite(value)) sum = (sum ?? 0) + value;
  }
  return sum;
}
