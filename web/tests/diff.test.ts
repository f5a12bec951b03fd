import { expect, test } from "vitest";

import { diff, fieldLines } from "../src/lib/diff";

test("an event is compared field by field, and not a digit is lost", () => {
  expect(fieldLines('{"a":12345678901234567890,"b": {"c":[1,2],"d":"x"}}')).toBe('{\n  "a": 12345678901234567890,\n  "b": {"c":[1,2],"d":"x"}\n}');
  expect(fieldLines('{"t":"a, \\"b\\": {","u":1}')).toBe('{\n  "t": "a, \\"b\\": {",\n  "u": 1\n}');
  expect(fieldLines("not an event")).toBe("not an event");
  const changed = diff(fieldLines('{"n":"8","who":"bob"}'), fieldLines('{"n":8,"who":"bob"}'));
  expect(changed.filter((line) => line.kind !== "same").map((line) => line.text.trim())).toEqual(['"n": "8",', '"n": 8,']);
});
