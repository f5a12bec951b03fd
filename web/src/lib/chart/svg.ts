/** A drawing as SVG text. */

import type { Drawing, Mark } from "./draw";

export function toSvg({ width, height, background, marks }: Drawing): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, Helvetica, Arial, sans-serif">`,
    `<rect width="${width}" height="${height}" fill="${background}"/>`,
    ...marks.map(element),
    "</svg>",
    "",
  ].join("\n");
}

function element(mark: Mark): string {
  switch (mark.mark) {
    case "line":
      return `<polyline points="${pairs(mark.points)}" fill="none" stroke="${mark.color}" stroke-width="${mark.width}" stroke-linejoin="round" stroke-linecap="round"/>`;
    case "area":
      return `<polygon points="${pairs(mark.points)}" fill="${mark.color}"/>`;
    case "rect":
      return `<rect x="${fixed(mark.x)}" y="${fixed(mark.y)}" width="${fixed(mark.width)}" height="${fixed(mark.height)}" fill="${mark.color}"/>`;
    case "text":
      return `<text x="${fixed(mark.x)}" y="${fixed(mark.y)}" fill="${mark.color}" font-size="${mark.size}" text-anchor="${mark.anchor}"${mark.bold ? ' font-weight="600"' : ""}>${escape(mark.text)}</text>`;
  }
}

const fixed = (value: number): string => String(Number(value.toFixed(2)));
const pairs = (points: [number, number][]): string => points.map(([x, y]) => `${fixed(x)},${fixed(y)}`).join(" ");

// XML 1.0 has no place for most control characters, not even escaped.
const escape = (text: string): string =>
  text
    // eslint-disable-next-line no-control-regex
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]!);
