import { expect, it } from "vitest";
import { example, followCommand, quote, rowsCommand, sendCommand, valueColumn } from "../src/lib/examples";
import type { View } from "../src/lib/types";

const base = "http://127.0.0.1:8080";

it("makes a short event that fits, without the time", () => {
  const columns = ["userid", "pageid", "n", "more", "viewtime"].map((name, at) => ({ name, type: name === "n" ? "BIGINT" : "VARCHAR", key: at === 0 }));
  expect(example({ columns, timestamp: "viewtime" })).toBe('{"userid":"you","pageid":"/hello","n":1}');
  expect(example({ columns: [], timestamp: null })).toBe("{}");
});

it("quotes for a shell, whatever is in it", () => {
  expect(quote("it's")).toBe("'it'\\''s'");
  expect(sendCommand("a b", '{"x":1}', base)).toBe(`curl -d '{"x":1}' ${base}/v1/topics/a%20b/events`);
  expect(followCommand("v", base)).toBe(`curl -N '${base}/v1/views/v/feed?snapshot=true'`);
});

it("orders rows by the first number that is no key", () => {
  const columns = [
    { name: "windowstart", type: "BIGINT", key: false },
    { name: "pageid", type: "VARCHAR", key: true },
    { name: "views", type: "BIGINT", key: false },
  ];
  expect(valueColumn(columns)).toBe("views");
  expect(rowsCommand({ name: "v", columns } as View, base)).toBe(`curl '${base}/v1/views/v/rows?limit=10&order=-views'`);
});
