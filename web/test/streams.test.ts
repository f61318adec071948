import assert from "node:assert/strict";
import { test } from "node:test";
import { listed } from "../src/core/ranks.ts";
import { Lines } from "../src/core/lines.ts";
import { pause } from "../src/core/pause.ts";
import { loginLink, route, withQuery } from "../src/core/route.ts";
import { serverEvents, textLines } from "../src/core/stream.ts";

const chunk = (data: string | Buffer | Uint8Array, set = {}) => ({
  worker: "workerpool0-0", rank: 0, generation: 1, stream: "STDOUT", offset: 0, problem: "",
  data: Buffer.from(data as string).toString("base64"), ...set,
});

const body = (parts: Uint8Array[]): ReadableStream<Uint8Array> =>
  new ReadableStream({ start: (c) => (parts.forEach((part) => c.enqueue(part)), c.close()) });

const all = async <T>(from: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = [];
  for await (const each of from) found.push(each);
  return found;
};

test("lines are whole however the bytes were cut", async () => {
  const bytes = new TextEncoder().encode("é\nzwei\n\nende");
  for (let cut = 0; cut <= bytes.length; cut++) {
    assert.deepEqual(await all(textLines(body([bytes.slice(0, cut), bytes.slice(cut)]))), ["é", "zwei", "", "ende"]);
  }
});

test("a long line that comes in many pieces is looked through once", async (of) => {
  const piece = new TextEncoder().encode("x".repeat(1000));
  let looked = 0;
  for (const name of ["split", "indexOf"] as const) {
    const own = String.prototype[name] as (...given: unknown[]) => never;
    of.mock.method(String.prototype, name, function (this: string, ...given: unknown[]) {
      looked += this.length;
      return own.apply(this, given);
    });
  }
  const found = await all(textLines(body(Array.from({ length: 200 }, () => piece))));
  of.mock.restoreAll();
  assert.deepEqual(found.map((line) => line.length), [200_000]);
  assert.ok(looked < 400_000, `${looked} characters`);
});

test("server-sent events: comments are dropped, data is joined, ids last", async () => {
  async function* lines() {
    yield* [": still here", "", "id: 7", "event: change", "data: {", "data:}", "", "data: x", "", "data: unfinished"];
  }
  assert.deepEqual(await all(serverEvents(lines())), [
    { id: "7", event: "change", data: "{\n}" },
    { id: "7", event: "message", data: "x" },
  ]);
});

test("chunks of ranks and streams are apart, and characters cut in two are whole", () => {
  const found = new Lines(100);
  const bytes = Buffer.from("é1\n");
  found.add(chunk(bytes.subarray(0, 1)));
  found.add(chunk("other\n", { rank: 1 }));
  found.add(chunk(bytes.subarray(1)));
  assert.deepEqual(found.lines.map((line) => [line.rank, line.text]), [[1, "other"], [0, "é1"]]);
});

test("what has no line end is shown at the end, and a problem is told", () => {
  const found = new Lines(100);
  found.add(chunk("half"));
  assert.equal(found.lines.length, 0);
  found.add(chunk("", { problem: "the host is away" }));
  found.flush();
  assert.deepEqual(found.lines.map((line) => [line.text, line.problem]), [["the host is away", true], ["half", false]]);
});

test("lines are bounded in number and length", () => {
  const found = new Lines(100);
  for (let i = 0; i < 1000; i++) found.add(chunk(`${i}\n`));
  assert.ok(found.lines.length <= 110);
  assert.equal(found.lines.length + found.dropped, 1000);
  assert.equal(found.lines.at(-1)?.text, "999");
  for (let i = 0; i < 100; i++) found.add(chunk(`${"x".repeat(10_000)}\r`, { rank: 2 }));
  found.add(chunk(`${"y".repeat(100_000)}\n`));
  assert.ok((found.lines.at(-1)?.text.length ?? 0) <= 16_385);
});

test("what has no line end yet is shown last, and once it has one in its place", () => {
  const found = new Lines(100);
  const texts = () => found.shown.map((line) => `${line.rank} ${line.text}`);
  found.add(chunk("one\n\u001b[31m50%"));
  found.add(chunk("Continue? ", { rank: 1 }));
  assert.deepEqual(texts(), ["0 one", "0 50%", "1 Continue? "]);
  assert.equal(new Set(found.shown.map((line) => line.number)).size, 3);
  assert.deepEqual([found.shown[1]?.offset, found.shown[1]?.runs], [4, [{ text: "50%", look: "a-31" }]]);
  found.add(chunk(Buffer.from("\r100% é").subarray(0, -1)));
  assert.deepEqual(texts(), ["0 one", "0 100% ", "1 Continue? "]);
  found.add(chunk(Uint8Array.of(...Buffer.from("é").subarray(1), ...Buffer.from("\nthree\n"))));
  assert.deepEqual(texts(), ["0 one", "0 100% é", "0 three", "1 Continue? "]);
  found.flush();
  assert.deepEqual(found.shown, found.lines);
  assert.equal(found.lines.length, 4);
});

test("a progress bar of many pictures shows its last one, whether its returns stand before or behind them", () => {
  const pictures = Array.from({ length: 2001 }, (_, step) => `step ${step}/2000`);
  for (const bar of [pictures.map((each) => `${each}\r`).join(""), pictures.map((each) => `\r${each}`).join("")]) {
    const [open, whole] = [new Lines(100), new Lines(100)];
    open.add(chunk(bar));
    assert.deepEqual(open.shown.map((line) => line.text), ["step 2000/2000"]);
    open.add(chunk("\nnext\n", { offset: bar.length }));
    whole.add(chunk(`${bar}\nnext\n`));
    for (const { lines } of [open, whole]) assert.deepEqual(lines.map((line) => line.text), ["step 2000/2000", "next"]);
  }
});

test("lines are bounded in weight, be it text or pieces", () => {
  const held = (line: string): Lines => {
    const found = new Lines(20_000);
    const given = chunk(`${line}\n`);
    for (let i = 0; i < 1400; i++) found.add(given);
    assert.equal(found.lines.length + found.dropped, 1400);
    return found;
  };
  assert.equal(held("x".repeat(1000)).dropped, 0);
  const long = held("x".repeat(16_000)).lines;
  assert.ok(long.length > 500 && long.length <= 1000, `${long.length}`);
  const coloured = held("\u001b[31mx\u001b[0my".repeat(150)).lines;
  assert.ok(coloured.length > 500 && coloured.length < 1300, `${coloured.length}`);
});

test("each line knows where it begins in its stream, also those that a search has found", () => {
  const found = new Lines(100);
  found.add(chunk("one\nzw", { offset: 50 }));
  found.add(chunk("éi\nthree", { offset: 56 }));
  found.flush();
  found.add(chunk("hit a\nhit b\n", { rank: 1, offset: 7, lineOffsets: [7, 1_000_000] }));
  assert.deepEqual(found.lines.map((line) => [line.text, line.offset]), [["one", 50], ["zwéi", 54], ["three", 60], ["hit a", 7], ["hit b", 1_000_000]]);
});

test("addresses lead to pages, and strange ones to none", () => {
  assert.equal(route("/", "").page, "overview");
  assert.deepEqual([route("/jobs/a%2Fb", "?tab=logs").name, route("/jobs/a%2Fb", "?tab=logs").query.get("tab")], ["a/b", "logs"]);
  for (const path of ["/constructor", "/__proto__", "/jobs/a/b", "/jobs/%ff", "/admin/x"]) {
    assert.equal(route(path, "").page, "missing", path);
  }
  assert.equal(withQuery(new URLSearchParams("a=1&b=2"), { a: "", c: "x y" }), "?b=2&c=x+y");
  assert.equal(withQuery(new URLSearchParams(), {}), "");
});

test("a login link leads within the page only", () => {
  const here = "https://page.example:7445";
  assert.deepEqual(loginLink("#abc&to=/jobs/x%3Ftab=logs", here), { code: "abc", to: "/jobs/x?tab=logs" });
  assert.equal(loginLink("#abc&to=/jobs/a%252Fb", here).to, "/jobs/a%2Fb");
  for (const to of [
    "//evil", "/\\evil", "https://evil", "javascript:alert(1)", "%2F%2Fevil", "%", "/%09/evil", "/%0a/evil", "%09//evil", "%20//evil",
    "/.//evil", "/x/..//evil", "/%5C/evil", "https:%2F%2Fpage.example:7446/x", "https:%2F%2Fpage.example:7445@evil/", "http:%2F%2Fpage.example:7445/x", "//",
  ]) {
    const found = loginLink(`#abc&to=${to}`, here).to;
    assert.equal(new URL(found, here).origin, here, to);
    assert.equal(found, "/", to);
  }
  assert.deepEqual(loginLink("", here), { code: "", to: "/" });
});

test("ranges of ranks are listed, within bounds", () => {
  assert.equal(listed("0-2,5"), "0,1,2,5");
  assert.equal(listed("7"), "7");
  assert.equal(listed("0-99999999").split(",").length, 8192);
  assert.equal(listed("5-2"), "5");
});

test("a wait leaves nothing on the signal of a page that is open for hours", async () => {
  const page = new AbortController();
  const held = new Set<unknown>();
  const [add, remove] = [page.signal.addEventListener.bind(page.signal), page.signal.removeEventListener.bind(page.signal)];
  page.signal.addEventListener = (type: string, listener: EventListener) => (held.add(listener), add(type, listener));
  page.signal.removeEventListener = (type: string, listener: EventListener) => (held.delete(listener), remove(type, listener));
  for (let n = 0; n < 5; n++) await pause(0, page.signal);
  assert.equal(held.size, 0);
  const cut = pause(60_000, page.signal);
  page.abort();
  await cut;
  assert.equal(held.size, 0);
});
