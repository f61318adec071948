import { answer, clock, draw, json, press, refused, Stream, until } from "./dom.ts";
import type { Answers } from "./dom.ts";
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import type { FunctionComponent } from "preact";
import { HostPage } from "../src/pages/host.tsx";
import { Hosts } from "../src/pages/hosts.tsx";
import { Jobs } from "../src/pages/jobs.tsx";
import { Overview } from "../src/pages/overview.tsx";
import { Schedules } from "../src/pages/schedules.tsx";
import { Frame } from "../src/ui/frame.tsx";
import { host } from "./host.ts";
import { at, job } from "./job.ts";

beforeEach(clock);
afterEach(() => mock.restoreAll());

const query = new URLSearchParams();
const status = json({ version: "1.2", started: at(0), hosts: {}, gpus: {}, jobs: {}, attention: [], attentionMore: 0, motd: null });
const hosts = json({ hosts: [host({ name: "gpu-07" })], nextPageToken: "" });
const schedule = json({
  schedules: [{ project: "default", name: "nightly", owner: "ann", cron: "0 0 * * *", timeZone: "UTC", overlap: "", startingDeadline: null, pausedBy: "", nextRun: null, lastRun: null, runs: 0, jobIds: [], leftOut: "", job: null }],
  nextPageToken: "",
});
const none = {
  "/v1/jobs": [json({ jobs: [], nextPageToken: "" })], "/v1/reservations": [json({ reservations: [] })], "/v1/status": [status],
  "/v1/templates": [json({ templates: [], nextPageToken: "" })],
};

/** What a page shows once `path` is refused after `shown` was there. */
async function afterwards<P extends object>(part: FunctionComponent<P>, props: P, shown: string, answers: Answers): Promise<string> {
  const changes = new Stream();
  answer({ ...none, ...answers, "/v1/changes": [changes.open] });
  const { text, gone } = draw(part, props);
  await until(() => text().includes(shown));
  assert.ok(!text().includes("Try again"), text());
  changes.change();
  await until(() => text().includes("Try again"));
  const found = text();
  gone();
  return found;
}

test("what was known stays, and beside it is why it may be old", async () => {
  for (const [part, props, shown, answers] of [
    [Overview, {}, "gpu-07", { "/v1/hosts": [hosts, refused(500, "it failed")] }],
    [Overview, {}, "gpu-07", { "/v1/hosts": [hosts], "/v1/status": [status, refused(500, "it failed")] }],
    [Overview, {}, "Nothing runs.", { "/v1/hosts": [hosts], "/v1/jobs": [none["/v1/jobs"][0], none["/v1/jobs"][0], refused(429, "it failed")] }],
    [Hosts, { query }, "gpu-07", { "/v1/hosts": [hosts, refused(503, "it failed")] }],
    [HostPage, { name: "gpu-07" }, "gpu-07", { "/v1/hosts/gpu-07": [json(host({ name: "gpu-07" })), refused(404, "it failed")], "/v1/hosts/gpu-07/events": [json({ events: [] })] }],
    [Schedules, { query }, "nightly", { "/v1/schedules": [schedule, refused(500, "it failed")] }],
    [Schedules, { query: new URLSearchParams("schedule=nightly") }, "nightly", { "/v1/schedules": [schedule, refused(403, "it failed")] }],
  ] as [FunctionComponent<object>, object, string, Answers][]) {
    const found = await afterwards(part, props, shown, answers);
    assert.ok(found.includes("it failed") && found.includes(shown), found);
  }
});

test("while the controller is away the banner alone says so", async () => {
  const changes = new Stream();
  answer({ ...none, "/v1/hosts": [hosts], "/v1/me": [json({ user: { name: "ann" }, cluster: "lab" })], "/v1/changes": [changes.open] });
  const { text, gone } = draw(Frame, {});
  await until(() => text().includes("gpu-07"));
  mock.method(globalThis, "fetch", () => Promise.reject(new TypeError("refused")));
  changes.break();
  await until(() => text().includes("The controller does not answer. What you see may be old"));
  assert.ok(text().includes("gpu-07") && !text().includes("Try again"), text());
  gone();
});

test("the banner tells of a controller that answers with failures, until it answers", async () => {
  const changes = new Stream();
  const answers = { ...none, "/v1/hosts": [hosts], "/v1/me": [json({ user: { name: "ann" }, cluster: "lab" })], "/v1/changes": [changes.open] };
  answer(answers);
  const { text, gone } = draw(Frame, {});
  await until(() => text().includes("gpu-07"));
  answer({ "/": [refused(503, "the disk is full")] });
  changes.change();
  await until(() => text().includes("fails to answer. What you see may be old; trying again… (the disk is full)"));
  answer(answers);
  await until(() => !text().includes("may be old"));
  gone();
});

test("hosts beyond the first page that can't be read are told of, and asked for again", async () => {
  const rest = json({ hosts: [host({ name: "gpu-08" })], nextPageToken: "" });
  answer({
    ...none, "/v1/hosts?pageSize=1000": [json({ hosts: [host({ name: "gpu-07" })], nextPageToken: "t" })],
    "/v1/hosts?pageSize=1000&pageToken=t": [refused(500, "it failed"), rest],
  });
  const { root, text, gone } = draw(Hosts, { query });
  await until(() => text().includes("it failed"));
  assert.ok(text().includes("gpu-07") && text().includes("The first 1 host."), text());
  press(root, "Try again");
  await until(() => text().includes("gpu-08"));
  assert.ok(!text().includes("The first"), text());
  gone();
});

test("a later page of the list of jobs that can't be read is told of", async () => {
  answer({ "/v1/jobs": [json({ jobs: [job({ id: "a", displayName: "first" })], nextPageToken: "t" }), refused(500, "it failed")] });
  const { text, gone } = draw(Jobs, { query });
  await until(() => text().includes("it failed"));
  assert.ok(text().includes("first"), text());
  gone();
});
