import assert from "node:assert/strict";
import { test } from "node:test";
import { checkClass, closed, done, keepsAway, over, reliability, repairs } from "../src/core/health.ts";
import { gpuLook, gpusFree, grouped, remark } from "../src/core/hosts.ts";
import { silence } from "../src/core/silence.ts";
import type { HostEvent } from "../src/core/types/host.ts";
import { check, gpu, host, reliability as known } from "./host.ts";
import { at, T0 } from "./job.ts";

test("a GPU is free only if a job may have it now, whatever its host looks like", () => {
  const states = ["FREE", "RESERVED", "UNAVAILABLE", "UNHEALTHY", "WITHHELD"] as const;
  const all = [...states.map((state) => gpu({ state })), gpu({ state: "USED", jobId: "j" }), gpu({ state: "UNAVAILABLE", problem: "Xid 79" })];
  assert.deepEqual(all.map(gpuLook), ["free", "reserved", "unavailable", "faulty", "unavailable", "used", "faulty"]);
  assert.equal(gpusFree(host({ gpus: all })), 1);
});

test("a finding says what was done about it, and what ends it", () => {
  const kept = check();
  assert.deepEqual([checkClass(kept), keepsAway(kept)], ["cordon", true]);
  assert.match(done(kept), /^It gets no new work/);
  assert.match(over(check({ health: "FAIL" })), /boot/);
  assert.match(over(kept), /after all is well/);
  assert.match(done(check({ health: "DEGRADED", keepsWorkAway: false })), /work goes there as before/);
  assert.match(done(check({ health: "INFORM", keepsWorkAway: false })), /no one was notified/);
});

test("a waived finding keeps no work away, and says who waived it", () => {
  const [admin, brake] = [check({ waived: "ADMIN" }), check({ waived: "BRAKE" })];
  assert.deepEqual([admin, brake].map(checkClass), ["cordon, waived by an admin", "cordon, waived: a common cause?"]);
  assert.deepEqual([admin, brake].map(keepsAway), [false, false]);
  assert.match(done(admin), /an admin has let/);
  assert.match(done(brake), /a common cause is likelier/);
});

test("a check that is not about hardware has a status, and ends once it passes", () => {
  const other = check({ check: "disk.state_dir", status: "WARNING", health: "UNSPECIFIED", keepsWorkAway: false });
  assert.equal(checkClass(other), "warning");
  assert.match(over(other), /passes again/);
});

test("what is over is told with its time, also where its beginning is older than what is kept", () => {
  const event = (cursor: number, kind: string, of: unknown): HostEvent => ({ cursor, time: at(cursor), message: "", event: { kind, check: of as string } });
  const history = [
    event(9, "check_passed", "disk.errors"), event(1, "check_failed", check()), event(3, "check_failed", check({ saw: "down again" })),
    event(5, "check_passed", "ib.port/mlx5_3:1"), event(7, "check_failed", check()), { cursor: 8, time: at(8), message: "", event: null },
  ];
  assert.deepEqual(closed(history, T0), [
    { check: "disk.errors", what: "", saw: "", from: null, to: T0 + 9 },
    { check: "ib.port/mlx5_3:1", what: "cordon", saw: "down again", from: T0 + 1, to: T0 + 5 },
  ]);
  assert.deepEqual(closed(history, T0 + 100), [], "too long ago");
});

test("a GPU that is out of service names what brings it back", () => {
  const fault = { cause: "Xid 79", repair: "REBOOT", since: null, count: 1 };
  const ill = host({ name: "gpu 7", gpus: [gpu(), gpu({ index: 3, faults: [fault] }), gpu({ index: 4, faults: [{ ...fault, repair: "RESET" }] })] });
  assert.deepEqual(repairs(ill).map((each) => each.command), ["holdfast host uncordon 'gpu 7' --gpu 3", "holdfast host uncordon 'gpu 7' --gpu 4"]);
  assert.match(repairs(ill)[0]?.words ?? "", /^GPU 3: Xid 79: out of service until the host has booted, or:$/);
  assert.match(repairs(ill)[1]?.words ?? "", /after a reset/);
});

test("reliability is told as far as it is known", () => {
  assert.deepEqual(reliability(undefined, T0), []);
  assert.deepEqual(reliability(known({ since: null }), T0), []);
  assert.match(reliability(known(), T0 + 60).join("; "), /^no failures in 36d of service since \S+; MTBF > 5d$/);
});

test("a host that is well has no remark", () => {
  assert.equal(remark(host(), T0), "");
  assert.equal(remark(host({ cordonReason: "ib.port: down", failedChecks: [check({ check: "ib.port", saw: "down" })] }), T0), "ib.port: down", "once");
});

test("a silent host has its moments in order: heard, now, lost", () => {
  const silent = host({ state: "SUSPECT", lastSeen: at(0), lostAt: at(66) });
  assert.deepEqual(silence(silent, [], T0 + 30).map(({ at, when }) => [at === null ? null : at - T0, when]), [[0, "was"], [30, "now"], [66, "comes"], [null, "comes"]]);
  assert.match(silence(silent, [], T0 + 30)[2]?.words ?? "", /^it is taken as lost, in 36s: /);
});

test("a lost host tells when it was lost, and a host that was never heard that it was not", () => {
  const event: HostEvent = { cursor: 1, time: at(66), message: "", event: { kind: "lost" } };
  const lost = silence(host({ state: "LOST", silentSince: at(0), agentStoppedAt: at(-1) }), [event], T0 + 90);
  assert.deepEqual(lost.map(({ at, when }) => [at === null ? null : at - T0, when]), [[-1, "was"], [0, "was"], [66, "was"], [90, "now"], [null, "comes"]]);
  const never = silence(host({ state: "SUSPECT", lastSeen: null }), [], T0);
  assert.deepEqual(never.map(({ when }) => when), ["was", "now", "comes"]);
  assert.match(never[0]?.words ?? "", /not heard since this controller began/);
});

test("hosts are grouped by a label of any name, and those without it are together", () => {
  const hosts = [host({ name: "a" }), host({ name: "b", labels: { rack: "r1" } }), host({ name: "c", labels: { constructor: "x" } })];
  const names = (label: string): [string, string[]][] => grouped(hosts, label).map(([value, of]) => [value, of.map((each) => each.name)]);
  assert.deepEqual(names("rack"), [["", ["a", "c"]], ["r1", ["b"]]]);
  assert.deepEqual(names("constructor"), [["", ["a", "b"]], ["x", ["c"]]]);
});
