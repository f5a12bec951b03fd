import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

const server = process.env["HEADRACE_URL"] ?? "http://127.0.0.1:8080";
const paths = ["/v1", "/registry", "/healthz", "/readyz", "/metrics"];

// A server without keys takes requests of its own pages only: the proxy vouches for those it serves.
export default defineConfig({
  // Relative addresses, so that the console also works behind a proxy that adds a prefix.
  base: "./",
  plugins: [svelte()],
  build: { outDir: "../src/headrace/console", emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 700 },
  server: { proxy: Object.fromEntries(paths.map((path) => [path, { target: server, changeOrigin: true, headers: { origin: server } }])) },
  test: { environment: "node", include: ["tests/**/*.test.ts"] },
});
