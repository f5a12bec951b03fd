import { describe, expect, it } from "vitest";
import { place, walk } from "../src/lib/layout";

const edges = (text: string): { from: string; to: string }[] => text.split(" ").map((pair) => ({ from: pair[0]!, to: pair[1]! }));

describe("place", () => {
  it("puts every arrow to the right, along the longest way", () => {
    const arrows = edges("ab bc cd ad ae");
    const at = new Map(place([..."abcde"], arrows).map((node) => [node.id, node]));
    for (const { from, to } of arrows) expect(at.get(to)!.layer).toBeGreaterThan(at.get(from)!.layer);
    expect(at.get("d")!.layer).toBe(3);
    expect(at.get("e")!.layer).toBe(1);
  });

  it("uncrosses lines", () => {
    const at = new Map(place([..."abyx"], edges("ax by")).map((node) => [node.id, node.row]));
    expect(at.get("a")! < at.get("b")!).toBe(at.get("x")! < at.get("y")!);
  });

  it("ends on a cycle, and on arrows to what is not there", () => {
    expect(place([..."abc"], edges("ab bc ca az")).map((node) => node.layer)).toEqual([0, 1, 2]);
    expect(place([], [])).toEqual([]);
  });

  it("takes a long chain without hurry", () => {
    const ids = Array.from({ length: 300 }, (_, i) => `n${i}`);
    const chain = ids.slice(1).map((to, i) => ({ from: ids[i]!, to }));
    expect(place(ids, chain).at(-1)!.layer).toBe(299);
  });
});

it("reads the topology as a list, each node once and below what feeds it", () => {
  expect(walk([..."abcd"], edges("ab bc ad ca"))).toHaveLength(4);
  expect(walk([..."abcd"], edges("ab bc ad"))).toEqual([
    { id: "a", depth: 0, from: null },
    { id: "b", depth: 1, from: "a" },
    { id: "c", depth: 2, from: "b" },
    { id: "d", depth: 1, from: "a" },
  ]);
});
