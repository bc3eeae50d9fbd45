// Node 20 does not read TypeScript, so vite compiles the tests.
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { runnerImport } from "vite";

const folder = fileURLToPath(new URL(".", import.meta.url));
for (const name of readdirSync(folder).filter((name) => name.endsWith(".test.ts"))) {
  await runnerImport(folder + name, { oxc: { jsx: { runtime: "automatic", importSource: "preact" } } });
}
