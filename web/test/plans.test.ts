import assert from "node:assert/strict";
import { test } from "node:test";
import { domains } from "../src/core/network.ts";
import { due, inZone, overlap } from "../src/core/plans.ts";
import type { Schedule } from "../src/core/plans.ts";
import { gpu, host } from "./host.ts";

function schedule(set: Partial<Schedule> = {}): Schedule {
  return {
    project: "default", name: "nightly", owner: "ann", cron: "30 2 * * *", timeZone: "Europe/Berlin", overlap: "FORBID", startingDeadline: null,
    createTime: null, pausedBy: "", nextRun: "2026-03-30T00:30:00Z", lastRun: null, runs: 0, jobIds: [], leftOut: "", job: null, ...set,
  };
}

test("a schedule is due by the clock of its time zone", () => {
  assert.match(due(schedule()), /^2026-03-30 02:30 (CEST|GMT\+2)$/);
  assert.match(inZone(0, "UTC"), /^1970-01-01 00:00 UTC$/);
  assert.match(inZone(0, "Mars/Olympus"), /^1970-01-01 /, "a zone that the browser doesn't know");
});

test("a schedule that is not due says why", () => {
  assert.equal(due(schedule({ nextRun: null, pausedBy: "otto" })), "paused by otto");
  assert.equal(due(schedule({ nextRun: null })), "never again");
  assert.deepEqual(["FORBID", "ALLOW", "REPLACE"].map((each) => overlap(schedule({ overlap: each }))), ["is left out", "starts beside it", "cancels that job and runs after its end"]);
});

test("a domain counts what is free in it, and comes before those within it", () => {
  const labels = (pod: string, rack?: string): Record<string, string> => ({ pod, ...(rack && { rack }) });
  const hosts = [
    host({ name: "b", labels: labels("p10", "r1"), gpus: [gpu(), gpu({ index: 2, jobId: "j", state: "USED" })], jobIds: ["j"] }),
    host({ name: "a", labels: labels("p2", "r1"), gpus: [gpu()] }),
    host({ name: "c", labels: labels("p2", "r2"), gpus: [gpu({ state: "UNAVAILABLE" })], cordoned: true, jobIds: ["j"] }),
    host({ name: "d", labels: labels("p2") }),
  ];
  const shown = domains(hosts, ["pod", "rack"]).map((each) => [each.path.join("/"), each.level, each.hosts, each.ready, each.free, each.gpus, each.whole, each.jobs.join()]);
  assert.deepEqual(shown, [
    ["p2", "pod", 3, 2, 1, 2, 1, "j"], ["p2/", "rack", 1, 1, 0, 0, 0, ""], ["p2/r1", "rack", 1, 1, 1, 1, 1, ""], ["p2/r2", "rack", 1, 0, 0, 1, 0, "j"],
    ["p10", "pod", 1, 1, 1, 2, 0, "j"], ["p10/r1", "rack", 1, 1, 1, 2, 0, "j"],
  ]);
  assert.deepEqual(domains(hosts, []), []);
});
