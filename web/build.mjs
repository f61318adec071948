// Bundles the page into the controller's package: index.html, and assets/ with hashed names, compressed beside.
import { build } from "esbuild";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../controller/holdfast_controller/page");

/** Of xterm.js: what makes styles in a way that the page's policy forbids, and what does the same within it. */
const STYLES = [
  [/[\w.]+\.createElement\("style"\)/g, "styleElement()", 3],
  [/(\w+)\.setAttribute\("style",`\$\{\1\.getAttribute\("style"\)\|\|""\}(\$\{\w+\};)`\)/g, "$1.style.cssText+=`$2`", 1],
];
const terminal = {
  name: "terminal",
  setup({ onLoad }) {
    onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, ({ path }) => {
      let code = readFileSync(path, "utf8");
      for (const [forbidden, allowed, times] of STYLES) {
        const found = code.match(forbidden)?.length ?? 0;
        if (found !== times) throw new Error(`xterm.js has ${forbidden} ${found} times, not ${times}: see what this version does`);
        code = code.replace(forbidden, allowed);
      }
      return { contents: `import { styleElement } from "${join(here, "src/ui/sheets.ts")}";${code}`, loader: "js" };
    });
  },
};

const built = await build({
  absWorkingDir: here,
  plugins: [terminal],
  splitting: true,
  entryPoints: { app: "src/main.tsx", theme: "src/theme.ts", style: "src/style/style.css" },
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  outdir: "assets",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome111", "firefox115", "safari16.4"],
  legalComments: "none",
  write: false,
});

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, "assets"), { recursive: true });
let page = readFileSync(join(here, "src/index.html"), "utf8");
for (const { path, contents } of built.outputFiles) {
  const name = path.slice(path.lastIndexOf("/") + 1);
  page = page.replace(`{${name.slice(0, name.indexOf("-"))}}`, `/assets/${name}`);
  const file = join(out, "assets", name);
  writeFileSync(file, contents);
  writeFileSync(`${file}.gz`, gzipSync(contents, { level: 9 }));
  writeFileSync(`${file}.br`, brotliCompressSync(contents, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
}
const notices = ["preact", "@xterm/xterm", "@xterm/addon-fit"].map((name) => `${name}\n\n${readFileSync(join(here, `node_modules/${name}/LICENSE`), "utf8")}`);
writeFileSync(join(out, "assets", "licences.txt"), notices.join("\n"));
if (/\{\w+\}/.test(page)) throw new Error("index.html names an asset that was not built");
writeFileSync(join(out, "index.html"), page);
