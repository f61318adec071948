import { answer, clock, draw, json, pass, refused, Stream, until } from "./dom.ts";
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { Events } from "../src/job/events.tsx";
import { Logs } from "../src/job/logs.tsx";
import { JobPage } from "../src/pages/job.tsx";
import { job } from "./job.ts";

beforeEach(clock);
afterEach(() => mock.restoreAll());

const chunk = (data: string, set = {}): string =>
  `${JSON.stringify({ worker: "w", rank: 0, generation: 1, stream: "STDOUT", offset: 0, problem: "", data: Buffer.from(data).toString("base64"), ...set })}\n`;
const event = (cursor: number): string => `${JSON.stringify({ cursor, type: "", time: null, message: `event ${cursor}`, state: "RUNNING", event: null })}\n`;
const shown = { id: "a", job: job({ id: "a" }), query: new URLSearchParams() };

test("a log that was cut is read anew; until then its lines stay", async () => {
  const [first, second] = [new Stream(), new Stream()];
  const asked = answer({ "/v1/jobs/a:logs": [first.open, refused(503, "another one leads"), second.open] });
  const { text, gone } = draw(Logs, shown);
  await until(() => asked.length === 1);
  first.say(chunk("one\ntwo\n"));
  await until(() => text().includes("onetwo"));
  first.break();
  await until(() => text().includes("broke off"));
  assert.ok(text().includes("onetwo"));
  await until(() => text().includes("another one leads"));
  await until(() => asked.length === 3);
  assert.ok(text().includes("onetwo"));
  second.say(chunk("two\nthree\n"));
  await until(() => text().includes("twothree"));
  assert.ok(!text().includes("one") && !text().includes("Try again"), text());
  gone();
});

test("a rank that runs and has printed no whole line", async () => {
  const stream = new Stream();
  answer({ "/v1/jobs/a:logs": [stream.open] });
  const { text, gone } = draw(Logs, shown);
  await until(() => text().includes("Loading…"));
  stream.say("\n");
  await until(() => text().includes("Nothing was printed yet."));
  stream.say(chunk("Continue? "));
  await until(() => text().includes("Continue? "));
  assert.ok(!text().includes("Nothing was printed"), text());
  gone();
});

test("lines of which none has what is looked for are not still loading", async () => {
  const stream = new Stream();
  answer({ "/v1/jobs/a:logs": [stream.open] });
  const { root, text, gone } = draw(Logs, { ...shown, query: new URLSearchParams("find=three") });
  stream.say(chunk("one\ntwo\n"));
  await until(() => text().includes("onetwo"));
  const only = root.all("input").find((each) => each.parentNode?.textContent.startsWith("only these"));
  assert.ok(only);
  Object.assign(only, { checked: true });
  only.dispatchEvent(new Event("change"));
  await until(() => text().includes("No line has that."));
  gone();
});

test("a log that is refused is not asked for again by itself", async () => {
  const asked = answer({ "/v1/jobs/a:logs": [refused(403, "not yours")] });
  const { text, gone } = draw(Logs, shown);
  await until(() => text().includes("not yours"));
  await pass(60_000);
  assert.equal(asked.length, 1);
  gone();
});

test("events that were cut go on after the last one", async () => {
  const [first, second] = [new Stream(), new Stream()];
  const asked = answer({ "/v1/jobs/a:watch": [first.open, second.open] });
  const { text, gone } = draw(Events, { id: "a", live: true });
  await until(() => asked.length === 1);
  first.say(event(7) + event(9));
  await until(() => text().includes("event 9"));
  first.break();
  await until(() => asked.length === 2);
  assert.deepEqual(asked, ["/v1/jobs/a:watch?cursor=0", "/v1/jobs/a:watch?cursor=9"]);
  second.say(event(12));
  await until(() => text().includes("event 12"));
  assert.ok(text().includes("event 7"), text());
  gone();
});

test("a log is read beside its job, and once where that has ended", async () => {
  const stream = new Stream();
  const asked = answer({ "/v1/jobs/a:logs": [stream.open] });
  const { text, gone } = draw(JobPage, { id: "a", query: new URLSearchParams("tab=logs") });
  stream.say(chunk("one\ntwo\n"));
  await until(() => text().includes("onetwo"));
  assert.ok(asked.some((path) => path.startsWith("/v1/jobs/a?")), "the job has not answered yet");
  gone();
  const again = answer({ "/v1/jobs/a?": [json(job({ id: "a", state: "SUCCEEDED" }))], "/v1/jobs/a:logs": [new Stream().open] });
  const page = draw(JobPage, { id: "a", query: new URLSearchParams("tab=logs") });
  await until(() => page.text().includes("succeeded"));
  await pass(5000);
  assert.equal(again.filter((path) => path.includes(":logs")).length, 1);
  page.gone();
});
