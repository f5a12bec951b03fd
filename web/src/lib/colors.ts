/** The theme's colours where CSS does not reach: canvases and exported files. */

export const SERIES_COLORS = 8;

export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888888";
}

export function seriesColor(at: number): string {
  return color(`c${(at % SERIES_COLORS) + 1}`);
}
