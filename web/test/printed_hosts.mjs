// Reads {now, hosts} as JSON from standard input, and prints what the page makes of each host: held against the command line's words.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const src = join(dirname(fileURLToPath(import.meta.url)), "../src/core");
const source = 'export * from "./health.ts"; export * from "./hosts.ts"; export * from "./measured.ts";';
const bundled = await build({ stdin: { contents: source, resolveDir: src }, bundle: true, format: "esm", write: false });
const page = await import(`data:text/javascript;base64,${Buffer.from(bundled.outputFiles[0].contents).toString("base64")}`);
const { now, hosts } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(hosts.map((host) => ({
  remark: page.remark(host, now),
  classes: host.failedChecks.map(page.checkClass),
  repairs: page.repairs(host).map(({ words, command }) => `${words} ${command}`),
  measured: page.measured(host.measurements, now),
  fails: page.reliability(host.reliability, now),
}))));
