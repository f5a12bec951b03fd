import { describe, expect, it } from "vitest";
import { errorRange, explainable, printingOf, settingOf, split, statementAt, steps } from "../src/lib/sql";

describe("split", () => {
  it("cuts at semicolons outside of strings, names and comments", () => {
    const text = "-- a; b\nSELECT ';' FROM `a;b` /* ; */ WHERE c = 'it''s;';  SHOW TABLES;\n\nselect 1 emit changes";
    expect(split(text).map(({ text: one, kind }) => [one, kind])).toEqual([
      ["SELECT ';' FROM `a;b` /* ; */ WHERE c = 'it''s;';", "pull"],
      ["SHOW TABLES;", "other"],
      ["select 1 emit changes", "push"],
    ]);
    for (const statement of split(text)) expect(text.slice(statement.start, statement.end)).toBe(statement.text);
  });

  it("does not take a string for EMIT CHANGES, nor a table made from a query for one", () => {
    expect(split("SELECT 'EMIT CHANGES' FROM t;")[0]!.kind).toBe("pull");
    expect(split("CREATE TABLE t AS SELECT a FROM s EMIT CHANGES;")[0]!.kind).toBe("other");
  });

  it("survives what is not finished", () => {
    expect(split("SELECT 'open; string").map((one) => one.text)).toEqual(["SELECT 'open; string"]);
    expect(split(" -- only a comment\n ;; ")).toEqual([]);
    expect(split("")).toEqual([]);
  });
});

it("sends statements between queries together, with their place in the editor", () => {
  const text = "CREATE STREAM a;\nSHOW TABLES;\nSELECT 1;\nDROP a;";
  expect(steps(text, 100)).toEqual([
    { kind: "statements", text: "CREATE STREAM a;\nSHOW TABLES;", start: 100 },
    { kind: "pull", text: "SELECT 1;", start: 100 + text.indexOf("SELECT") },
    { kind: "statements", text: "DROP a;", start: 100 + text.indexOf("DROP") },
  ]);
});

it("finds the statement at the cursor", () => {
  const text = "SELECT 1;\n\nSELECT 2;";
  expect(statementAt(text, 3)?.text).toBe("SELECT 1;");
  expect(statementAt(text, 10)?.text).toBe("SELECT 1;");
  expect(statementAt(text, text.length)?.text).toBe("SELECT 2;");
  expect(statementAt("", 0)).toBeNull();
});

describe("errorRange", () => {
  const sent = "SELECT pageid\nFROM pageview;";

  it("turns line and column into a place in the editor", () => {
    const at = errorRange(sent, { line: 2, column: 6, length: 8 }, 50);
    expect(("x".repeat(50) + sent).slice(at.from, at.to)).toBe("pageview");
  });

  it("counts characters as Python does, not UTF-16 units", () => {
    const text = "SELECT '🙂🙂', nope FROM t;";
    const at = errorRange(text, { line: 1, column: 14, length: 4 });
    expect(text.slice(at.from, at.to)).toBe("nope");
  });

  it("never points outside, whatever it is told", () => {
    for (const place of [{ line: 99, column: 99, length: 99 }, { line: 1, column: 500 }, { line: 2, column: 15, length: 1 }]) {
      const { from, to } = errorRange(sent, place);
      expect(from).toBeGreaterThanOrEqual(0);
      expect(to).toBeLessThanOrEqual(sent.length);
      expect(to).toBeGreaterThanOrEqual(from);
    }
  });

  it("marks all of it without a place", () => {
    expect(errorRange("DROP x; ", {}, 10)).toEqual({ from: 10, to: 17 });
  });
});

it("tells queries, prints and settings apart", () => {
  const kinds = (text: string): string[] => split(text).map((one) => one.kind);
  expect(kinds("PRINT t; SET 'a' = 'b'; UNSET 'a'; WITH x AS (SELECT 1) SELECT * FROM x; SELECT a FROM s EMIT FINAL;")).toEqual(["print", "set", "set", "pull", "push"]);
  expect(kinds("CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS $$ a; b $$; SHOW TABLES;")).toEqual(["other", "other"]);
});

it("reads what SET and PRINT say", () => {
  expect(settingOf("SET 'auto.offset.reset' = 'earliest';")).toEqual(["auto.offset.reset", "earliest"]);
  expect(settingOf("unset 'It''s';")).toEqual(["it's", null]);
  expect(settingOf("SET nonsense;")).toBeNull();
  expect(printingOf("PRINT orders;")).toEqual({ topic: "orders", fromBeginning: false, interval: 1, limit: null });
  expect(printingOf("print 'my-topic' FROM BEGINNING INTERVAL 5 LIMIT 3;")).toEqual({ topic: "my-topic", fromBeginning: true, interval: 5, limit: 3 });
});

it("explains queries, and what makes them", () => {
  expect(explainable("EXPLAIN SELECT 1;")).toBe("SELECT 1;");
  expect(explainable("  CREATE TABLE t AS SELECT 1;")).toBe("CREATE TABLE t AS SELECT 1;");
  expect(explainable("SHOW TABLES;")).toBeNull();
});
