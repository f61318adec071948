// Reads jobs as JSON from standard input, and prints what the page makes of each: held against the command line's words.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const src = join(dirname(fileURLToPath(import.meta.url)), "../src/core");
const bundled = await build({ entryPoints: [join(src, "gang.ts")], bundle: true, format: "esm", write: false });
const gang = await import(`data:text/javascript;base64,${Buffer.from(bundled.outputFiles[0].contents).toString("base64")}`);
const jobs = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(jobs.map((job) => ({
  exits: gang.exitRows(job.exitGroups).map((group) => [String(group.generation), group.ranks, group.reason, group.text, group.late]),
  recoveries: job.recoveries.length ? gang.recoverySummary(job.recoveries) : "",
  answers: job.recoveries.map(gang.answer),
  phases: job.recoveries.map(gang.phasesInWords),
  steps: gang.steps(job),
  word: gang.lastWord(job),
  spares: gang.spares(job),
  bindings: gang.bindings(job.workers).map(({ rank, words }) => `Rank ${rank}: ${words}`),
  ranks: gang.gang(job.jobSpec).ranks,
}))));
