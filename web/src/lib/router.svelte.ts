/** Which room is open: the part of the address after `#`, so that any server, prefix or proxy will do. */

export const ROOMS = ["overview", "collect", "log", "queries", "views", "deliver", "jobs", "alerts", "sql"] as const;
export type Room = (typeof ROOMS)[number];

export interface Route {
  room: Room | "unknown";
  /** The topic, query or view that is open in the room. */
  name: string | null;
  parameters: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [first = "", ...rest] = path.split("/");
  const room = first === "" ? "overview" : ROOMS.find((name) => name === first);
  let name: string | null = null;
  try {
    name = rest.length > 0 && rest[0] !== "" ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    return { room: "unknown", name: null, parameters: new URLSearchParams() };
  }
  return { room: room ?? "unknown", name, parameters: new URLSearchParams(query) };
}

export function href(room: Room, name?: string | null, parameters?: Record<string, string>): string {
  const path = room === "overview" ? "" : room + (name ? `/${encodeURIComponent(name)}` : "");
  const query = parameters ? `?${new URLSearchParams(parameters)}` : "";
  return `#/${path}${query}`;
}

/** The page of a node of the topology. */
export function nodeHref(node: { id?: string; kind: string; name: string }): string {
  if (node.kind === "topic") return href("log", node.name);
  if (node.kind === "query") return href("queries", node.name);
  if (node.kind === "view") return href("views", node.name);
  return href("collect", node.id?.startsWith("gate:") ? node.name : null);
}

class Router {
  route = $state.raw<Route>(parseRoute(globalThis.location?.hash ?? ""));

  constructor() {
    globalThis.addEventListener?.("hashchange", () => {
      this.route = parseRoute(location.hash);
    });
  }

  go(target: string): void {
    location.hash = target;
  }
}

export const router = new Router();
