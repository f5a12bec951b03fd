/** A chart as a list of marks, from which SVG and PDF are written: the same picture in both. */

import { clock, day, short } from "../format";
import { downsample, ticks, timeTicks } from "../series";

export type Mark =
  | { mark: "line"; points: [number, number][]; color: string; width: number }
  | { mark: "area"; points: [number, number][]; color: string }
  | { mark: "rect"; x: number; y: number; width: number; height: number; color: string }
  | { mark: "text"; x: number; y: number; text: string; color: string; size: number; anchor: "start" | "middle" | "end"; bold?: boolean };

export interface Drawing {
  width: number;
  height: number;
  background: string;
  marks: Mark[];
}

export interface Series {
  label: string;
  color: string;
  values: (number | null)[];
}

export interface LineChart {
  title: string;
  xs: number[];
  series: Series[];
}

export interface Bars {
  title: string;
  bars: { label: string; value: number }[];
  color: string;
}

export interface Inks {
  text: string;
  muted: string;
  line: string;
  background: string;
}

export const PAPER: Inks = { text: "#16212a", muted: "#55636e", line: "#dfe5e9", background: "#ffffff" };

const WIDTH = 960;
const LEFT = 64;
const RIGHT = 24;
const TOP = 56;

export function drawLines(chart: LineChart, inks: Inks = PAPER): Drawing {
  const legend = layLegend(chart.series, inks);
  const height = 420 + legend.height;
  const bottom = height - legend.height - 44;
  const marks: Mark[] = [title(chart.title, inks)];
  const [x0, x1] = extent(chart.xs, 1);
  const values = chart.series.flatMap((series) => series.values.filter((value): value is number => value !== null));
  const [low, high] = withZero(values);
  const x = (value: number): number => LEFT + ((value - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  const y = (value: number): number => bottom - ((value - low) / (high - low)) * (bottom - TOP);
  for (const tick of ticks(low, high, 5)) {
    marks.push(rule(LEFT, y(tick), WIDTH - RIGHT, y(tick), inks.line));
    marks.push(text(LEFT - 8, y(tick) + 4, short(tick), inks.muted, 12, "end"));
  }
  for (const tick of timeTicks(x0, x1, 8)) marks.push(text(x(tick), bottom + 20, timeLabel(tick, x1 - x0), inks.muted, 12, "middle"));
  for (const series of chart.series) marks.push(...drawSeries(chart.xs, series, x, y));
  return { width: WIDTH, height, background: inks.background, marks: [...marks, ...legend.at(height - legend.height)] };
}

function drawSeries(xs: number[], series: Series, x: (v: number) => number, y: (v: number) => number): Mark[] {
  const thin = downsample({ xs, ys: series.values }, 1600);
  const runs: [number, number][][] = [[]];
  thin.xs.forEach((at, i) => {
    const value = thin.ys[i];
    if (value === null || value === undefined) runs.push([]);
    else runs.at(-1)!.push([x(at), y(value)]);
  });
  return runs.flatMap((points): Mark[] => {
    if (points.length === 0) return [];
    const [only] = points;
    if (points.length === 1 && only) return [{ mark: "rect", x: only[0] - 2, y: only[1] - 2, width: 4, height: 4, color: series.color }];
    return [{ mark: "line", points, color: series.color, width: 2 }];
  });
}

export function drawBars(chart: Bars, inks: Inks = PAPER): Drawing {
  const step = 30;
  const height = TOP + Math.max(1, chart.bars.length) * step + 16;
  const left = 240;
  const most = Math.max(1, ...chart.bars.map((bar) => bar.value));
  const marks: Mark[] = [title(chart.title, inks)];
  chart.bars.forEach((bar, at) => {
    const y = TOP + at * step;
    const width = (Math.max(0, bar.value) / most) * (WIDTH - left - 110);
    marks.push(text(left - 12, y + 17, clip(bar.label, 34), inks.text, 13, "end"));
    marks.push({ mark: "rect", x: left, y: y + 4, width: Math.max(1, width), height: step - 10, color: chart.color });
    marks.push(text(left + Math.max(1, width) + 8, y + 17, short(bar.value), inks.muted, 13, "start"));
  });
  return { width: WIDTH, height, background: inks.background, marks };
}

function layLegend(series: Series[], inks: Inks): { height: number; at: (y: number) => Mark[] } {
  const labels = series.map(({ label }) => clip(label, 30));
  const columns = 4;
  const rows = Math.ceil(series.length / columns);
  const at = (top: number): Mark[] =>
    series.flatMap(({ color }, i): Mark[] => {
      const x = LEFT + (i % columns) * ((WIDTH - LEFT - RIGHT) / columns);
      const y = top + Math.floor(i / columns) * 22;
      return [{ mark: "rect", x, y: y - 9, width: 12, height: 10, color }, text(x + 18, y, labels[i]!, inks.text, 12, "start")];
    });
  return { height: series.length > 0 ? rows * 22 + 4 : 0, at };
}

export function extent(values: number[], least: number): [number, number] {
  if (values.length === 0) return [0, least];
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return high - low < least ? [low - least / 2, high + least / 2] : [low, high];
}

function withZero(values: number[]): [number, number] {
  const [low, high] = extent([0, ...values], 1e-9);
  return high - low < 1e-6 ? [low, low + 1] : [low, high + (high - low) * 0.05];
}

export function timeLabel(ms: number, span: number): string {
  if (span < 10 * 60_000) return clock(ms).slice(0, 8);
  if (span < 36 * 3_600_000) return clock(ms).slice(0, 5);
  return day(new Date(ms)).slice(5);
}

const clip = (label: string, most: number): string => (label.length > most ? `${label.slice(0, most - 1)}…` : label);
const title = (label: string, inks: Inks): Mark => ({ ...text(LEFT - 40, 32, clip(label, 90), inks.text, 17, "start"), bold: true });
const rule = (x0: number, y0: number, x1: number, y1: number, color: string): Mark => ({ mark: "line", points: [[x0, y0], [x1, y1]], color, width: 1 });

function text(x: number, y: number, label: string, color: string, size: number, anchor: "start" | "middle" | "end"): Extract<Mark, { mark: "text" }> {
  return { mark: "text", x, y, text: label, color, size, anchor };
}
