import assert from "node:assert/strict";
import { test } from "node:test";
import { asked, deletes, forWhom, has, holder, inTheWay, keepsOff, ofHost, setByCommand, times, whose } from "../src/core/reserved.ts";
import type { Limits, Quota, Reservation } from "../src/core/reserved.ts";
import { clock, epoch } from "../src/core/words.ts";

const START = "2026-03-30T20:00:00Z";
const END = "2026-03-31T08:00:00Z";
const BEFORE = (epoch(START) ?? 0) - 3600;
const WITHIN = (epoch(START) ?? 0) + 3600;

function reservation(set: Partial<Reservation> = {}): Reservation {
  return {
    name: "conference", project: "vision", user: "", start: START, end: END, hosts: [], labels: {}, match: "", count: 0, gpus: 0, gpuType: "", reason: "",
    createdBy: "ann", chosenHosts: ["h1", "h2"], lack: "", jobsOfOthers: 0, unknownUser: false, ...set,
  };
}

test("what is asked for is in the words of the command line", () => {
  assert.equal(asked(reservation({ gpus: 64, gpuType: "H200" })), "64 H200 GPUs");
  assert.equal(asked(reservation({ count: 4, gpuType: "H200", labels: { room: "1", rack: "a" } })), "4 hosts with H200 GPUs rack=a, room=1");
  assert.equal(asked(reservation({ hosts: ["h1", "h2"] })), "hosts h1, h2");
  assert.equal(asked(reservation({ count: 2, labels: { rack: "a" }, match: "gpu in (a,b),!old" })), "2 hosts rack=a, gpu in (a,b),!old");
});

test("a reservation says when it holds, and what it keeps off until then and while it lasts", () => {
  assert.deepEqual(times(reservation(), BEFORE), [clock(BEFORE + 3600, BEFORE), clock(epoch(END) ?? 0, BEFORE)]);
  assert.equal(times(reservation(), WITHIN)[0], "under way");
  assert.match(keepsOff(reservation(), BEFORE), /^no job of projects other than vision starts there that is expected to run beyond the beginning, but SPOT jobs$/);
  assert.match(keepsOff(reservation({ project: "" }), WITHIN), /^no job of other projects than its own starts there, but SPOT jobs$/);
  assert.match(keepsOff(reservation({ jobsOfOthers: 2 }), WITHIN), /; 2 jobs of other projects may run into it, and none is stopped for it$/);
});

test("a reservation for a user says so", () => {
  assert.deepEqual([whose(reservation()), whose(reservation({ project: "", user: "ann" })), whose(reservation({ user: "ann" }))], ["vision", "user/ann", "user/ann in vision"]);
  assert.match(keepsOff(reservation({ project: "", user: "ann", jobsOfOthers: 1 }), WITHIN), /^no job but those of user\/ann starts there, but SPOT jobs; 1 job of another user may/);
});

test("a user whom nobody knows is pointed out, of a reservation and of a quota", () => {
  const made = reservation({ project: "", user: "bbo", unknownUser: true });
  assert.deepEqual([forWhom(made), forWhom(reservation({ user: "ann" }))], ["user/bbo (no such user)", "user/ann in vision"]);
  assert.ok(ofHost([made], "h1", WITHIN)[0]?.startsWith("for user/bbo (no such user) until "));
});

test("jobs in the way and hosts are counted", () => {
  assert.deepEqual([0, 1, 2].map((jobsOfOthers) => inTheWay(reservation({ jobsOfOthers }))), ["", "1 job of another project", "2 jobs of other projects"]);
  assert.deepEqual([has(reservation()), has(reservation({ chosenHosts: [] }))], ["2 hosts", "no host"]);
});

test("a host's page has the reservations that have it, also those of projects that one may not see", () => {
  const found = [reservation({ reason: "demo" }), reservation({ name: "other", chosenHosts: ["h9"] }), reservation({ name: "secret", project: "", start: null })];
  const said = ofHost(found, "h1", BEFORE);
  assert.equal(said.length, 2);
  assert.ok(said[0]?.startsWith(`for vision from ${times(reservation(), BEFORE)[0]} until `) && said[0].includes("(conference: demo): no job"));
  assert.ok(said[1]?.startsWith("for a project that you may not see until ") && said[1].includes("(secret): "));
  assert.deepEqual(ofHost(found, "h3", BEFORE), []);
  assert.equal(deletes("conference"), "holdfast reservation delete conference");
});

test("a quota names its holder and what was set by command", () => {
  const none: Limits = { gpus: null, runningJobs: null, waitingJobs: null, maxPriority: null };
  const quota = (set: Partial<Quota>): Quota => ({ project: "vision", user: null, limits: none, byCommand: null, gpus: 0, runningJobs: 0, waitingJobs: 0, unknownUser: false, ...set });
  assert.deepEqual([holder(quota({})), holder(quota({ project: null, user: "ann" }))], ["project/vision", "user/ann"]);
  assert.equal(holder(quota({ project: null, user: "bbo", unknownUser: true })), "user/bbo (no such user)");
  assert.equal(setByCommand(quota({})), "");
  assert.equal(setByCommand(quota({ byCommand: { ...none, gpus: -1, maxPriority: 2 } })), "GPUs, priority");
});
