import assert from "node:assert/strict";
import { test } from "node:test";
import { groupOf, groupWords, losses, summary, sums } from "../src/core/ledger.ts";
import type { Goodput, GoodputLine } from "../src/core/types/goodput.ts";

const line = (category: string, cause: string, ms: number): GoodputLine => ({ category, cause, payer: "job", ms });

test("a start after an interruption is part of the loss", () => {
  assert.equal(groupOf("warm_up", "FIRST_START"), "starting");
  assert.equal(groupOf("warm_up", "HANG"), "lost");
  assert.equal(groupOf("train", "WORK"), "trained");
  assert.equal(groupOf("of_tomorrow", "WORK"), "unknown");
});

test("groups add up to all lines", () => {
  const lines = [line("train", "WORK", 70), line("lost", "HANG", 20), line("ran", "WORK", 7), line("new", "X", 3)];
  assert.equal(sums(lines).reduce((sum, [, ms]) => sum + ms, 0), 100);
});

test("the largest losses come first, by cause", () => {
  const found = { totalMs: 100, lines: [line("stop", "HANG", 5), line("lost", "HANG", 20), line("stop", "DRAINED", 10)] };
  assert.deepEqual(losses(found as Goodput), [
    { cause: "HANG", ms: 25, share: 0.25 },
    { cause: "DRAINED", ms: 10, share: 0.1 },
  ]);
});

test("sums by name keep ranks apart, and unknown work makes no goodput", () => {
  const rows = [
    { project: "a", model: "", unit: "GPU", category: "train", payer: "job", ms: 30 },
    { project: "a", model: "", unit: "GPU", category: "warm_up", payer: "program", ms: 10 },
    { project: "a", model: "", unit: "rank", category: "ran", payer: "job", ms: 99 },
    { project: "b", model: "", unit: "GPU", category: "train", payer: "job", ms: 50 },
  ];
  assert.deepEqual(
    summary(rows, "project").map(({ name, ranks, totalMs, goodput }) => [name, ranks, totalMs, goodput]),
    [["b", false, 50, 1], ["a", false, 40, 0.75], ["a", true, 99, null]],
  );
});

test("work is called not saved only where saves are known", () => {
  const named = ["A", "B", "C", "D", undefined].map((level) => groupWords("not saved yet", level));
  assert.deepEqual(named, ["not saved yet", "trained, no save known", "trained, no save known", "not saved yet", "not saved yet"]);
  assert.equal(groupWords("trained", "B"), "trained");
});
