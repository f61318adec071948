import { answer, clock, cut, draw, json, pass, refused, Stream, until } from "./dom.ts";
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { h } from "preact";
import { ApiError, get, lines, onAnswer, send } from "../src/core/api.ts";
import { useSeries } from "../src/job/charts.tsx";
import { Jobs } from "../src/pages/jobs.tsx";
import { useData } from "../src/ui/hooks.ts";
import { at, job } from "./job.ts";

beforeEach(clock);
afterEach(() => mock.restoreAll());

/** The status of what a call ends with, and of what all were told. */
async function told(call: Promise<unknown>): Promise<[number, (number | undefined)[]]> {
  const heard: (number | undefined)[] = [];
  const stop = onAnswer((error) => heard.push(error?.status));
  const error = await call.then(() => null, (problem: unknown) => problem);
  stop();
  assert.ok(error instanceof ApiError, String(error));
  return [error.status, heard];
}

test("an answer that breaks off in its middle is none, and all are told", async () => {
  answer({ "/v1/hosts": [cut()], "/v1/jobs": [cut('{"ha')] });
  assert.deepEqual(await told(get("/v1/hosts")), [0, [undefined, 0]]);
  assert.deepEqual(await told(send("/v1/jobs")), [0, [undefined, 0]]);
});

test("who no longer asks hears nothing of an answer that broke off", async () => {
  answer({});
  const asker = new AbortController();
  const heard: unknown[] = [];
  const stop = onAnswer((error) => heard.push(error));
  const call = get("/v1/hosts", asker.signal);
  asker.abort();
  await assert.rejects(call, { name: "AbortError" });
  stop();
  assert.deepEqual(heard, []);
});

test("data is asked for again after an answer that broke off, and after one that is no JSON of its kind", async () => {
  answer({ "/v1/status": [cut(), () => new Response("<p>a proxy"), json({ version: "1.2" })] });
  const Data = () => h("p", null, useData<{ version: string }>("/v1/status", () => false).data?.version);
  const { text, gone } = draw(Data, {});
  await until(() => text() === "1.2");
  gone();
});

test("the list of jobs and the charts go on after an answer that broke off", async () => {
  answer({ "/v1/jobs?": [cut(), json({ jobs: [], nextPageToken: "" })], "/v1/jobs/a/series": [cut(), json({ since: at(0), step: 60, points: 0, series: [], nextPageToken: "" })] });
  const list = draw(Jobs, { query: new URLSearchParams() });
  await until(() => list.text().includes("No jobs yet"));
  list.gone();
  const Series = () => h("p", null, useSeries(job({ id: "a", state: "RUNNING" }), new URLSearchParams()).pages.length);
  const charts = draw(Series, {});
  await until(() => charts.text() === "1", 60_000);
  charts.gone();
});

test("a stream without a sign of life is cut, and all are told; with one it goes on", async () => {
  const stream = new Stream();
  answer({ "/v1/changes": [stream.open] });
  const asker = new AbortController();
  const found: string[] = [];
  let end: Promise<[number, (number | undefined)[]]> | null = null;
  const read = async (): Promise<void> => {
    for await (const line of await lines("/v1/changes", "text/event-stream", asker.signal)) found.push(line);
  };
  let over = false;
  end = told(read()).finally(() => (over = true));
  for (let n = 0; n < 20; n++) {
    stream.say(": still here\n");
    await until(() => found.length === n + 1);
    await pass(14_950);
  }
  assert.equal(over, false);
  await until(() => over, 61_000);
  assert.deepEqual(await end, [0, [undefined, 0]]);
  assert.ok(stream.left);
});

test("a read that is never answered ends", async () => {
  answer({});
  let over = false;
  const end = told(get("/v1/status")).finally(() => (over = true));
  await until(() => over, 100_000);
  assert.deepEqual(await end, [0, [0]]);
});

test("calls leave nothing on the signal of a page that is open for hours", async () => {
  const stream = new Stream();
  answer({ "/v1/status": [json({}), refused(500, "no"), cut()], "/v1/changes": [stream.open], "/v1/gone": [refused(404, "no")] });
  const page = new AbortController();
  const held = new Set<unknown>();
  const [add, remove] = [page.signal.addEventListener.bind(page.signal), page.signal.removeEventListener.bind(page.signal)];
  page.signal.addEventListener = (type: string, listener: EventListener) => (held.add(listener), add(type, listener));
  page.signal.removeEventListener = (type: string, listener: EventListener) => (held.delete(listener), remove(type, listener));
  for (let n = 0; n < 3; n++) await get("/v1/status", page.signal).catch(() => undefined);
  await lines("/v1/gone", "", page.signal).catch(() => undefined);
  assert.equal(held.size, 0);
  const read = await lines("/v1/changes", "", page.signal);
  assert.equal(held.size, 1);
  stream.say("a\nb\n");
  for await (const line of read) if (line === "a") break;
  assert.equal(held.size, 0);
  assert.ok(stream.left);
});
