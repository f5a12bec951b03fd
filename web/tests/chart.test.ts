import { describe, expect, it } from "vitest";
import { drawBars, drawLines } from "../src/lib/chart/draw";
import { toPdf } from "../src/lib/chart/pdf";
import { toSvg } from "../src/lib/chart/svg";
import { fileName, toCsv, toJson } from "../src/lib/export";

const lines = drawLines({
  title: "views <b> & (c) …",
  xs: [0, 60_000, 120_000],
  series: [
    { label: "/a", color: "#0b7a99", values: [1, null, 3] },
    { label: "/b", color: "#c4601c", values: [2, 4, 6] },
  ],
});

describe("a drawn chart", () => {
  it("stays inside its frame and breaks its line at a hole", () => {
    for (const mark of lines.marks) {
      const points = mark.mark === "line" || mark.mark === "area" ? mark.points : [[mark.x, mark.y] as const];
      for (const [x, y] of points) {
        expect(x).toBeGreaterThanOrEqual(0);
        expect(x).toBeLessThanOrEqual(lines.width);
        expect(y).toBeGreaterThanOrEqual(0);
        expect(y).toBeLessThanOrEqual(lines.height);
      }
    }
    const drawn = lines.marks.filter((mark) => mark.mark === "line" && mark.color === "#c4601c");
    expect(drawn).toHaveLength(1);
    expect(lines.marks.filter((mark) => mark.mark === "line" && mark.color === "#0b7a99")).toHaveLength(0);
  });

  it("can be empty", () => {
    expect(drawLines({ title: "", xs: [], series: [] }).marks.length).toBeGreaterThan(0);
    expect(drawBars({ title: "", bars: [], color: "#000000" }).height).toBeGreaterThan(0);
  });

  it("is well-formed SVG whatever the labels hold", () => {
    const svg = toSvg(lines);
    expect(svg).toContain("views &lt;b&gt; &amp; (c) …");
    expect(svg.match(/<text /g)!.length).toBe(svg.match(/<\/text>/g)!.length);
    expect(toSvg(drawBars({ title: "\u0000", bars: [{ label: '"<>', value: 1 }], color: "#000000" }))).not.toMatch(/\u0000|<>/);
  });
});

describe("a PDF", () => {
  const bytes = toPdf(lines, "views (all)");
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");

  it("has every object where its table says", () => {
    expect(text.startsWith("%PDF-1.4\n")).toBe(true);
    expect(text.endsWith("%%EOF\n")).toBe(true);
    const table = Number(/startxref\n(\d+)\n/.exec(text)![1]);
    expect(text.slice(table, table + 4)).toBe("xref");
    const positions = [...text.slice(table).matchAll(/^(\d{10}) 00000 n $/gm)].map((match) => Number(match[1]));
    expect(positions).toHaveLength(7);
    positions.forEach((position, at) => expect(text.slice(position).startsWith(`${at + 1} 0 obj\n`)).toBe(true));
  });

  it("says its content's length rightly, and escapes parentheses", () => {
    const [, length, content] = /\/Length (\d+) >>\nstream\n([\s\S]*?)\nendstream/.exec(text)!;
    expect(content!.length).toBe(Number(length));
    expect(text).toContain("(views (all))".replace("(all)", "\\(all\\)"));
    expect(content).toContain("views <b> & \\(c\\) \u0085");
  });
});

describe("rows as files", () => {
  const columns = [{ name: "page,id", type: "VARCHAR" }, { name: "n", type: "BIGINT" }];
  const rows = [['say "hi"', 9007199254740993n], ["=cmd()", -1], [null, null]];

  it("are CSV that a spreadsheet neither breaks nor runs", () => {
    expect(toCsv(columns, rows)).toBe('"page,id",n\r\n"say ""hi""",9007199254740993\r\n\'=cmd(),-1\r\n,\r\n');
  });

  it("are JSON with exact numbers", () => {
    expect(toJson(columns, rows.slice(0, 1))).toBe('[\n  {\n    "page,id": "say \\"hi\\"",\n    "n": 9007199254740993\n  }\n]\n');
  });

  it("have names that any disk takes", () => {
    expect(fileName("views: a/b", "csv", new Date(0))).toBe("views_a_b-1970-01-01-000000.csv");
  });
});
