/** A drawing as a PDF of one page: vectors and Helvetica, which every reader has. */

import type { Drawing, Mark } from "./draw";

export function toPdf({ width, height, background, marks }: Drawing, title: string): Uint8Array<ArrayBuffer> {
  const content = [
    `${ink(background)} rg 0 0 ${width} ${height} re f`,
    "1 J 1 j",
    ...marks.map((mark) => paint(mark, height)),
  ].join("\n");
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${width} ${height}] /Contents 4 0 R /Resources << /Font << /F1 5 0 R /F2 6 0 R >> >> >>`,
    `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>",
    `<< /Title (${winAnsi(title)}) /Producer (Headrace) >>`,
  ];
  return latin1(assemble(objects));
}

/** Every position in the cross-reference table is a byte's: the text holds one character a byte until the end. */
function assemble(objects: string[]): string {
  let file = "%PDF-1.4\n%\u00e2\u00e3\u00cf\u00d3\n";
  const positions = objects.map((object, at) => {
    const position = file.length;
    file += `${at + 1} 0 obj\n${object}\nendobj\n`;
    return position;
  });
  const table = positions.map((position) => `${String(position).padStart(10, "0")} 00000 n \n`).join("");
  return `${file}xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R /Info ${objects.length} 0 R >>\nstartxref\n${file.length}\n%%EOF\n`;
}

/** PDF's y grows upwards. */
function paint(mark: Mark, height: number): string {
  switch (mark.mark) {
    case "line":
      return `${ink(mark.color)} RG ${mark.width} w ${path(mark.points, height)} S`;
    case "area":
      return `${ink(mark.color)} rg ${path(mark.points, height)} h f`;
    case "rect":
      return `${ink(mark.color)} rg ${fixed(mark.x)} ${fixed(height - mark.y - mark.height)} ${fixed(mark.width)} ${fixed(mark.height)} re f`;
    case "text": {
      const shift = mark.anchor === "start" ? 0 : textWidth(mark.text, mark.size) * (mark.anchor === "end" ? 1 : 0.5);
      return `BT ${ink(mark.color)} rg /${mark.bold ? "F2" : "F1"} ${mark.size} Tf ${fixed(mark.x - shift)} ${fixed(height - mark.y)} Td (${winAnsi(mark.text)}) Tj ET`;
    }
  }
}

const fixed = (value: number): string => String(Number(value.toFixed(2)));
const path = (points: [number, number][], height: number): string =>
  points.map(([x, y], at) => `${fixed(x)} ${fixed(height - y)} ${at === 0 ? "m" : "l"}`).join(" ");

function ink(color: string): string {
  const value = Number.parseInt(color.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255].map((part) => Number((part / 255).toFixed(3))).join(" ");
}

// Helvetica's widths, in thousandths, of the characters that axes and labels are made of; others count as average.
const NARROW = /[ijl.,:;'|!/ ftI]/;
const WIDE = /[mwMW%@]/;

export function textWidth(text: string, size: number): number {
  let width = 0;
  for (const character of text) width += NARROW.test(character) ? 278 : WIDE.test(character) ? 850 : /[A-Z&]/.test(character) ? 680 : 556;
  return (width * size) / 1000;
}

const SPECIAL: Record<string, number> = { "€": 128, "…": 133, "‘": 145, "’": 146, "“": 147, "”": 148, "•": 149, "–": 150, "—": 151 };

/** The text in the font's encoding; what it does not have becomes a question mark. */
function winAnsi(text: string): string {
  let out = "";
  for (const character of text) {
    const code = SPECIAL[character] ?? character.codePointAt(0)!;
    if ("()\\".includes(character)) out += `\\${character}`;
    else if (code < 32) out += " ";
    else out += code < 256 && !(code > 126 && code < 160 && !(character in SPECIAL)) ? String.fromCharCode(code) : "?";
  }
  return out;
}

function latin1(text: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return bytes;
}
