/** Places a topology from left to right: every arrow points right, few lines cross. */

export interface Placed {
  id: string;
  layer: number;
  row: number;
}

interface Edge {
  from: string;
  to: string;
}

/** A layer is the longest way from a beginning; rows follow the neighbours' middle, twice there and back. */
export function place(ids: string[], edges: Edge[]): Placed[] {
  const known = new Set(ids);
  const arrows = withoutCycles(ids, edges.filter((edge) => known.has(edge.from) && known.has(edge.to)));
  const layers = group(ids, layerOf(ids, arrows));
  for (let round = 0; round < 4; round += 1) {
    const forward = round % 2 === 0;
    const order = forward ? layers : [...layers].reverse();
    for (let i = 1; i < order.length; i += 1) arrange(order[i]!, order.slice(0, i).flat(), layers, arrows, forward);
  }
  return layers.flatMap((layer, at) => layer.map((id, row) => ({ id, layer: at, row: row - (layer.length - 1) / 2 })));
}

/** A query may read what it feeds, through a topic: such an arrow is drawn, but does not place anything. */
function withoutCycles(ids: string[], edges: Edge[]): Edge[] {
  const out = new Map<string, Edge[]>();
  for (const edge of edges) out.set(edge.from, [...(out.get(edge.from) ?? []), edge]);
  const state = new Map<string, "open" | "done">();
  const kept: Edge[] = [];
  const visit = (id: string): void => {
    state.set(id, "open");
    for (const edge of out.get(id) ?? []) {
      if (state.get(edge.to) === "open") continue;
      kept.push(edge);
      if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  for (const id of ids) if (!state.has(id)) visit(id);
  return kept;
}

function layerOf(ids: string[], edges: Edge[]): Map<string, number> {
  const layer = new Map(ids.map((id) => [id, 0]));
  for (let changed = true; changed; ) {
    changed = false;
    for (const { from, to } of edges) {
      if (layer.get(to)! <= layer.get(from)!) {
        layer.set(to, layer.get(from)! + 1);
        changed = true;
      }
    }
  }
  return layer;
}

function group(ids: string[], layer: Map<string, number>): string[][] {
  const layers: string[][] = Array.from({ length: Math.max(0, ...layer.values()) + 1 }, () => []);
  for (const id of ids) layers[layer.get(id)!]!.push(id);
  return layers;
}

function arrange(layer: string[], before: string[], layers: string[][], edges: Edge[], forward: boolean): void {
  const position = new Map(layers.flatMap((ids) => ids.map((id, row) => [id, row - (ids.length - 1) / 2] as const)));
  const placed = new Set(before);
  const middle = new Map(
    layer.map((id) => {
      const rows = edges
        .filter((edge) => (forward ? edge.to : edge.from) === id && placed.has(forward ? edge.from : edge.to))
        .map((edge) => position.get(forward ? edge.from : edge.to)!);
      return [id, rows.length > 0 ? rows.reduce((a, b) => a + b, 0) / rows.length : position.get(id)!] as const;
    }),
  );
  layer.sort((a, b) => middle.get(a)! - middle.get(b)! || position.get(a)! - position.get(b)!);
}

export interface Step {
  id: string;
  depth: number;
  from: string | null;
}

/** Every node once, each after what feeds it: the topology read as an indented list. */
export function walk(ids: string[], edges: Edge[]): Step[] {
  const known = new Set(ids);
  const fed = new Set(edges.filter((edge) => known.has(edge.from)).map((edge) => edge.to));
  const seen = new Set<string>();
  const steps: Step[] = [];
  const visit = (id: string, depth: number, from: string | null): void => {
    if (seen.has(id) || !known.has(id)) return;
    seen.add(id);
    steps.push({ id, depth, from });
    for (const edge of edges) if (edge.from === id) visit(edge.to, depth + 1, id);
  };
  for (const id of ids) if (!fed.has(id)) visit(id, 0, null);
  for (const id of ids) visit(id, 0, null);
  return steps;
}
