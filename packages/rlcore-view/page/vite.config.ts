import { defineConfig } from "vite";

// One script and one style sheet with fixed names, so that a build of the same sources gives the same bytes, and a
// report can contain both.
export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/rlcore_view/bundle",
    emptyOutDir: true,
    modulePreload: false,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // the first with light-dark()
    cssCodeSplit: false,
    rollupOptions: {
      input: "src/main.tsx",
      output: { format: "iife", entryFileNames: "view.js", assetFileNames: "view[extname]" },
    },
  },
});
