import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

const server = process.env["HEADRACE_URL"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  // Relative addresses, so that the console also works behind a proxy that adds a prefix.
  base: "./",
  plugins: [svelte()],
  build: { outDir: "../src/headrace/console", emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 700 },
  server: { proxy: { "/v1": server, "/registry": server, "/healthz": server, "/readyz": server, "/metrics": server } },
  test: { environment: "node", include: ["tests/**/*.test.ts"] },
});
