import assert from "node:assert/strict";
import { test } from "node:test";
import { exitRows, foldedList, exitText, gang, lastWord, lean, machines, phasesInWords, ran, rankRows, recoverySummary, steps, tally } from "../src/core/gang.ts";
import { apart, barPath, saveMarks, strip, ticks, uprightPath } from "../src/core/strip.ts";
import type { Job } from "../src/core/types/job.ts";
import { alike, at, exit, hang, job, recovery, T0, workers } from "./job.ts";

test("a gang is counted from its spec", () => {
  assert.deepEqual(gang(job().jobSpec), { workers: 2, ranks: 4, gpus: 4 });
  assert.deepEqual(gang({ workerPoolSpecs: [{ replicaCount: 3 }] }), { workers: 3, ranks: 3, gpus: 0 });
  assert.deepEqual(gang({}), { workers: 0, ranks: 0, gpus: 0 });
});

test("what its workers ask for is said once, and nothing where any will do", () => {
  const pool = (machineSpec: object, replicaCount = 1) => ({ machineSpec, replicaCount });
  const mig = pool({ acceleratorType: "H100", gpuPartitionSize: "1g.10gb", machineType: "big" });
  assert.equal(machines({ workerPoolSpecs: [mig, mig] }), "H100, MIG 1g.10gb, machine type big");
  assert.equal(machines({ workerPoolSpecs: [pool({ machineType: "big" }), pool({}, 3)] }), "machine type big; any");
  assert.equal(machines({ workerPoolSpecs: [pool({}), pool({ machineType: "big" }, 0)] }), "");
  assert.equal(machines({}), "");
});

test("ranks that ended alike are one row, with what turned up later", () => {
  const late = exit({ reason: "SIGNALED", exitCode: null, signal: 9, message: "" });
  const failed = { rank: 3, exitCode: 1, reason: "NONZERO_EXIT", message: "exited with code 1", raised: "ValueError: bad" };
  assert.deepEqual(
    exitRows([alike("3", failed), alike("0-2", { lateExit: late }, 3)]).map(({ ranks, reason, text, late }) => [ranks, reason, text, late]),
    [
      ["3", "NONZERO_EXIT", "exited with code 1; it raised ValueError: bad", ""],
      ["0-2", "COMPLETED", "exited with code 0", "SIGNALED: signal 9 (SIGKILL)"],
    ],
  );
});

test("an exit is told with its number, its signal and what it raised", () => {
  assert.equal(exitText(exit({ message: "", exitCode: null, signal: 11, coreDumped: true })), "signal 11 (SIGSEGV), core dumped");
  assert.equal(exitText(exit({ message: "was killed", exitCode: null, signal: 9 })), "signal 9 (SIGKILL): was killed");
  assert.equal(exitText(exit({ message: "", exitCode: null })), "unknown");
});

test("recoveries add up, those that go on do not", () => {
  assert.equal(recoverySummary([recovery({}), recovery({ lostSeconds: 0.5 })]), "2 recoveries, 20s lost");
  assert.equal(recoverySummary([recovery({}), recovery({ lostSeconds: null })]), "2 recoveries, 20s lost so far, 1 of them going on");
  assert.equal(recoverySummary([recovery({ lostSeconds: null })]), "1 recovery, going on");
  assert.equal(phasesInWords(recovery({})), "detect 8.0s, diagnose 2.0s, stop 4.0s, start 6.0s");
});

test("the last word is what matters now", () => {
  const error = { code: 3, message: "failed", details: [], exitCode: 1, rank: 2, raised: "ValueError: bad", whyFinal: "" };
  assert.equal(lastWord(job({ error })), "rank 2: ValueError: bad");
  assert.equal(lastWord(job({ waitReason: "needs 8 GPUs" })), "needs 8 GPUs");
  assert.equal(lastWord(job({ recoveryCount: 2, hangCount: 1 })), "2 recoveries, 1 hang");
  assert.equal(lastWord(job()), "");
  const summary = { condition: "WAITS", headline: "waits for 8 GPUs", health: "", happened: "", done: "", advice: "", command: "" };
  assert.equal(lastWord(job({ waitReason: "needs 8 GPUs", summary })), "waits for 8 GPUs");
});

test("a row of a list keeps what the list shows, and not what takes most of it", () => {
  const summary = { condition: "NEEDS_YOU", headline: "It hangs", health: "h".repeat(99), happened: "a", done: "b", advice: "c", command: "d" };
  const whole = job({ waitReason: "w".repeat(99), health: "slow", labels: { team: "vision" }, summary });
  const kept = lean(whole);
  assert.deepEqual([lastWord(kept), kept.summary?.condition, kept.health, kept.id], [lastWord(whole), "NEEDS_YOU", "slow", whole.id]);
  assert.ok(JSON.stringify(kept).length < JSON.stringify(whole).length - 198);
  const old = job({ waitReason: "needs 8 GPUs" });
  assert.equal(lean(old), old, "of an older controller, whose rows have no headline");
});

test("steps and run time", () => {
  assert.equal(steps(job({ step: 1200, stepTotal: 5000 })), "1200/5000");
  assert.equal(steps(job({ step: 0 })), "0");
  assert.equal(ran(job(), T0 + 70), 60);
  assert.equal(ran(job({ state: "JOB_STATE_QUEUED" }), T0 + 70), null);
  assert.equal(ran(job({ endTime: at(30) }), T0 + 70), 20);
});

test("a generation whose exits were not read has the mark of what ended it", () => {
  const found = job({ generation: 3, recoveries: [recovery({ endReason: "NONZERO_EXIT" }), recovery({ generation: 3, startedAt: at(60), endedAt: at(65), endReason: "SIGNALED" })] });
  found.exitGroups = [alike("1", { rank: 1, generation: 2, reason: "SIGNALED", endTime: at(55) })];
  const exits = strip(found, T0 + 100).marks.filter((mark) => mark.kind === "exit");
  assert.deepEqual(exits.map((mark) => mark.title), ["NONZERO_EXIT: workerpool1-0 rank 3", "rank 1: SIGNALED"]);
});

test("each rank has the exit of its present generation only", () => {
  const found = job({ generation: 2, exitGroups: [alike("0", { rank: 0, generation: 1 }), alike("1", { rank: 1, generation: 2 })] });
  assert.deepEqual(rankRows(found, workers()).map((row) => [row.rank, row.exit?.generation ?? null]), [[1, 2], [0, null], [2, null], [3, null]]);
});

test("ranks that are unlike the rest come first, those that failed before all", () => {
  const found = job({ exitGroups: [alike("0", { rank: 0 }), alike("3", { rank: 3, exitCode: 1, reason: "NONZERO_EXIT", message: "" })] });
  const rows = rankRows(found, workers());
  assert.deepEqual(rows.map(({ rank, bad }) => [rank, bad]), [[3, true], [0, false], [1, false], [2, false]]);
  assert.deepEqual([...tally(rows)], [["NONZERO_EXIT: exit code 1", [3]], ["COMPLETED: exited with code 0", [0]], ["running", [1, 2]]]);
});

test("the strip is whole: it waits, runs, is interrupted and runs again", () => {
  const found = strip(job({ generation: 2, recoveries: [recovery({})], hangs: [hang({})] }), T0 + 100);
  assert.deepEqual(
    found.spans.map(({ kind, from, to, generation }) => [kind, from - T0, to - T0, generation]),
    [["waits", 0, 10, 0], ["runs", 10, 30, 1], ["lost", 30, 50, 2], ["runs", 50, 100, 2]],
  );
  assert.deepEqual(found.generations.map(({ number, from, to }) => [number, from - T0, to - T0]), [[1, 10, 30], [2, 50, 100]]);
  assert.deepEqual(found.marks.map(({ kind, at }) => [kind, at - T0]), [["hang", 38], ["relaunch", 50]]);
});

test("a hang that was not acted on is drawn by itself; an open one lasts", () => {
  const over = strip(job({ hangs: [hang({ outcome: "OVER", judgedAt: at(60) })] }), T0 + 100);
  assert.deepEqual(over.spans.filter((each) => each.kind === "lost").map(({ from, to }) => [from - T0, to - T0]), [[30, 60]]);
  for (const outcome of ["WOULD_RESTART", "WITHHELD"]) {
    const told = strip(job({ hangs: [hang({ outcome, judgedAt: at(60) })] }), T0 + 100);
    assert.deepEqual(told.spans.filter((span) => span.kind === "lost").map((span) => span.to - T0), [100], "it hangs on");
    const moved = strip(job({ generation: 2, hangs: [hang({ outcome })], recoveries: [recovery({ startedAt: at(80), endedAt: at(90) })] }), T0 + 100);
    assert.ok(moved.spans.filter((span) => span.kind === "lost").every((span) => span.to - T0 <= 90), "until it was relaunched");
  }
  const open = strip(job({ hangs: [hang({ outcome: "", judgedAt: null })] }), T0 + 100);
  assert.deepEqual(open.spans.filter((each) => each.kind === "lost").map(({ from, to }) => [from - T0, to - T0]), [[30, 100]]);
});

test("a job that waits to be relaunched has no mark of that yet", () => {
  const found = strip(job({ state: "JOB_STATE_QUEUED", recoveries: [recovery({ endedAt: null, lostSeconds: null })] }), T0 + 100);
  assert.deepEqual(found.marks.filter(({ kind }) => kind === "relaunch"), []);
});

test("while a host is silent it isn't known whether the job runs", () => {
  const found = strip(job({}), T0 + 100, T0 + 60);
  assert.deepEqual(found.spans.map(({ kind, from, to }) => [kind, from - T0, to - T0]), [["waits", 0, 10], ["runs", 10, 100], ["unheard", 60, 100]]);
});

test("a job that never started waits until its end", () => {
  const found = strip(job({ startTime: null, endTime: at(5), state: "JOB_STATE_CANCELLED" }), T0 + 100);
  assert.deepEqual(found.spans.map(({ kind, from, to }) => [kind, from - T0, to - T0]), [["waits", 0, 5]]);
  assert.deepEqual(found.marks.map(({ kind }) => kind), ["end"]);
});

test("the first failure of a generation is marked, with how many followed", () => {
  const found = job();
  const failed = { exitCode: 1, reason: "NONZERO_EXIT" };
  found.exitGroups = [alike("1,3", { ...failed, rank: 1, endTime: at(21) }, 2), alike("2", { ...failed, rank: 2, exitCode: 3, endTime: at(22) }), alike("0", { reason: "STOPPED", endTime: at(23) })];
  assert.deepEqual(strip(found, T0 + 100).marks.map(({ title, at }) => [title, at - T0]), [["rank 1: NONZERO_EXIT, and 2 more", 21]]);
});

test("clocks of hosts that differ make no negative span", () => {
  const found = strip(job({ recoveries: [recovery({ startedAt: at(5), endedAt: at(4) })] }), T0 + 100);
  assert.ok(found.spans.every((each) => each.to > each.from));
});

test("ticks are round and few", () => {
  assert.deepEqual(ticks(3, 62, 6), [10, 20, 30, 40, 50, 60]);
  assert.ok(ticks(0, 86_400 * 365, 8).length <= 13);
});

test("days begin at midnight also behind a change of the clocks", () => {
  const day = 86_400, change = Date.parse("2026-10-25T01:00:00Z") / 1000, begin = change - 2 * day;
  const found = (ahead: (moment: number) => number): string[] => ticks(begin, begin + 5 * day, 6, ahead).map((tick) => new Date(1000 * (tick + ahead(tick))).toISOString().slice(8, 16));
  const days = ["24T00:00", "25T00:00", "26T00:00", "27T00:00", "28T00:00"];
  assert.deepEqual(found((moment) => (moment < change ? 7200 : 3600)), days);
  assert.deepEqual(found((moment) => (moment < change ? 0 : 3600)), days);
});

test("a paused job is drawn running until its ranks had ended, then waiting", () => {
  const paused = job({ state: "JOB_STATE_PAUSED", waitReason: "paused" });
  paused.exitGroups = [alike("0-3", { endTime: at(40), reason: "STOPPED" }, 4, at(60))];
  const found = strip(paused, T0 + 100);
  assert.deepEqual(found.spans.map(({ kind, from, to }) => [kind, from - T0, to - T0]), [["waits", 0, 10], ["runs", 10, 60], ["waits", 60, 100]]);
});

test("a reason to wait is of this moment, and not of a wait that is over", () => {
  const words = (set: Partial<Job>): string => strip(job({ waitReason: "nothing is heard from host-3", ...set }), T0 + 100).spans[0]?.title ?? "";
  assert.equal(words({ startTime: at(10) }), "waited 10s");
  assert.match(words({ startTime: null, state: "JOB_STATE_QUEUED" }), /^waited 1m 40s: nothing is heard from host-3$/);
});

test("saves are marks, with their step where it is known", () => {
  const saves = [{ time: at(30), step: 1200 }, { time: at(60), step: null }, { time: null, step: 1 }];
  assert.deepEqual(saveMarks(saves), [
    { at: T0 + 30, kind: "save", title: "step 1200 was saved" },
    { at: T0 + 60, kind: "save", title: "a checkpoint was complete" },
  ]);
});

test("an array is one row of a list, in the state of what it does", () => {
  const array = { id: "sweep-x", index: 3, count: 20, atOnce: 4, running: 0, waiting: 2, done: 4, failed: 1 };
  const [first, alone, ...more] = foldedList([job({ id: "sweep-x-3", array }), job({ id: "b" }), job({ id: "sweep-x-2", array: { ...array, index: 2 } })]);
  assert.deepEqual(more, []);
  assert.deepEqual([first?.id, first?.state, alone?.id], ["sweep-x", "JOB_STATE_QUEUED", "b"]);
  assert.equal(lastWord(first!), "Array of 20 jobs, 4 at once: 0 running, 2 waiting, 4 done, 1 failed");
  const states = [{ running: 1 }, { waiting: 0 }, { waiting: 0, failed: 0 }].map((set) => foldedList([job({ array: { ...array, ...set } })])[0]?.state);
  assert.deepEqual(states, ["JOB_STATE_RUNNING", "JOB_STATE_FAILED", "JOB_STATE_SUCCEEDED"]);
  assert.equal(lastWord(foldedList([job({ array: { ...array, count: 1, atOnce: 0 } })])[0]!), "Array of 1 job: 0 running, 2 waiting, 4 done, 1 failed");
});

test("thousands of lines and bars are one path each, and none is drawn twice", () => {
  const axis = { from: 0, to: 1000, width: 100 };
  assert.equal(uprightPath([5, 7, 100, 101, 2000], axis, 0, 84), "M1 0V84M10 0V84");
  const bars = barPath([{ from: 500, to: 500 }, { from: 100, to: 200 }, { from: 150, to: 300 }, { from: -50, to: -10 }], axis, 84);
  assert.equal(bars, "M10.0 0H30.0V84H10.0ZM50.0 0H51.0V84H50.0Z");
  assert.equal(barPath([{ from: -50, to: 2000 }], axis, 84), "M0.0 0H100.0V84H0.0Z");
});

test("marks of a kind that would lie over each other are one that says so", () => {
  const mark = (at: number, kind: "exit" | "save") => ({ at, kind, title: `${kind} at ${at}` });
  const found = apart([mark(0, "exit"), mark(10, "save"), mark(20, "exit"), mark(60, "exit"), mark(500, "exit")], { from: 0, to: 1000, width: 100 }, 7);
  assert.deepEqual(found.map((each) => [each.at, each.kind]), [[0, "exit"], [10, "save"], [500, "exit"]]);
  assert.match(found[0]?.title ?? "", /^exit at 0, and 2 more within/);
  assert.equal(found[1]?.title, "save at 10");
});
