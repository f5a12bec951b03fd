import { afterEach, describe, expect, it, vi } from "vitest";
import { api, ApiError } from "../src/lib/api";
import { diffRows } from "../src/lib/deploy";
import { ALL, comparable, filterQuery, usualPair, whenDone } from "../src/lib/differences";
import type { Difference, Version } from "../src/lib/types-deploy";

const version = (number: number, state: Version["state"], since_ms = 0): Version => ({
  version: number, state, since_ms, topic: "", query_id: null, deployment: 0, served: [], kept_until_ms: null, rows: 1, lag: 0, statement: "", strategy: "kappa", layers: null,
});
const begun: Difference = { id: 4, view: "v", old: 1, new: 2, state: "waiting", error: null, comparison: null, keys: [], columns: [], windowed: false };

afterEach(() => vi.unstubAllGlobals());

describe("versions to compare", () => {
  it("are those that are kept up to date", () => {
    const all = [version(1, "retired"), version(2, "failed"), version(3, "serving"), version(4, "building"), version(5, "caught up")];
    expect(comparable(all).map((one) => one.version)).toEqual([1, 3, 5]);
  });

  it("are usually what serves and what comes after it, or what came last before it", () => {
    expect(usualPair([version(1, "retired"), version(2, "serving"), version(3, "caught up")])).toEqual({ old: 2, new: 3 });
    expect(usualPair([version(1, "retired", 50), version(2, "retired", 90), version(3, "serving"), version(4, "building")])).toEqual({ old: 2, new: 3 });
    expect(usualPair([version(1, "serving"), version(2, "retired", 90)])).toEqual({ old: 2, new: 1 });
    expect(usualPair([version(1, "serving"), version(2, "failed")])).toBeNull();
  });
});

describe("rows of a difference", () => {
  it("are asked for by what was chosen, and nothing else", () => {
    expect(filterQuery(ALL)).toEqual({});
    expect(filterQuery({ kind: "only_old", key: { page: "/a", country: "" }, exact: false, window: "60000", column: "n", least: "0.5" })).toEqual({
      kind: "only_old", "prefix.page": "/a", window: "60000", column: "n", min_delta: "0.5",
    });
    expect(filterQuery({ ...ALL, key: { page: "/a" }, exact: true })).toEqual({ "key.page": "/a" });
  });

  it("say which values differ as the server found, also of numbers beyond 2^53", () => {
    const big = 2n ** 60n;
    const samples = [{ key: { k: "a" }, window: null, old: { n: big, sum: 0.30000000000000004 }, new: { n: big + 3n, sum: 0.3 }, deltas: { n: 3 } }];
    const [row] = diffRows(samples).rows;
    expect(row!.cells).toEqual([
      { old: big, new: big + 3n, delta: 3, differs: true },
      { old: 0.30000000000000004, new: 0.3, delta: null, differs: false },
    ]);
  });
});

describe("a comparison", () => {
  it("is waited for, and says how far it is", async () => {
    const answers: Difference[] = [{ ...begun, state: "comparing" }, { ...begun, state: "done" }];
    const seen: string[] = [];
    const done = await whenDone(begun, async () => answers.shift()!, async () => {}, (one) => seen.push(one.state));
    expect([done.state, seen]).toEqual(["done", ["waiting", "comparing"]]);
  });

  it("that fails says why, and what to do", async () => {
    const failed: Difference = { ...begun, state: "failed", error: { code: "not_comparable", message: "version 1 stands", detail: null, hint: "start it" } };
    const problem = await whenDone(failed, async () => failed, async () => {}, () => {}).catch((error: unknown) => error);
    expect(problem).toBeInstanceOf(ApiError);
    expect([(problem as ApiError).message, (problem as ApiError).hint, (problem as ApiError).body.detail]).toEqual(["version 1 stands", "start it", undefined]);
  });
});

describe("a name with a slash in it", () => {
  it("is not taken for another address", () => {
    const fetched = vi.fn();
    vi.stubGlobal("fetch", fetched);
    for (const name of ["a/versions", "..", "."]) expect(() => api.view(name)).toThrowError(`\`${name}\` does not exist`);
    expect(fetched).not.toHaveBeenCalled();
  });
});
