// Builds the web view into the Python package. The first lines of app.js and app.css name the sources they are
// made of, so that a test can tell when somebody forgot to build.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const here = import.meta.dirname;
const target = join(here, "../src/shoal/surfaces/web/static");

function sources() {
  const found = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => join(each.parentPath, each.name).slice(here.length + 1).replaceAll("\\", "/"));
  return [...found, "build.mjs", "package.json", "package-lock.json", "tsconfig.json"].sort();
}

function digest() {
  const hash = createHash("sha256");
  for (const name of sources()) {
    hash.update(`${name}\0`);
    hash.update(readFileSync(join(here, name)));
    hash.update("\0");
  }
  return hash.digest("hex");
}

const licence = readFileSync(join(here, "node_modules/preact/LICENSE"), "utf8").trim();
const head = `/*! sources sha256:${digest()}\nShoal's web view, Apache-2.0. Built by \`make web\` from web/src; do not edit.`;

mkdirSync(target, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none",
  format: "iife",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: target,
  banner: {
    js: `${head}\n\nIt contains Preact:\n${licence}\n*/`,
    css: `${head}\n*/`,
  },
  logLevel: "warning",
});
copyFileSync(join(here, "src/index.html"), join(target, "index.html"));
