import assert from "node:assert/strict";
import test from "node:test";
import { carries, carry, follow, onFollowed, tags, take } from "../src/core/followed.ts";

const LIST = "/v1/hosts";

test("an answer is made of what it was and of what is told of it", () => {
  const seen: unknown[] = [];
  const stop = follow<unknown>(LIST, "1", { hosts: ["a", "b", "c", "d"], nextPageToken: "" }, (data) => seen.push(data));
  take({ path: LIST, from: "1", tag: "2", list: "hosts", nextPageToken: "t", parts: ["x", [0, 1], { name: "y" }, [3, 3]] });
  assert.deepEqual(seen.pop(), { hosts: ["x", "a", "b", { name: "y" }, "d"], nextPageToken: "t" });
  take({ path: LIST, from: "2", tag: "3", list: "hosts", nextPageToken: "", parts: [] });
  assert.deepEqual(seen.pop(), { hosts: [], nextPageToken: "" });
  take({ path: LIST, from: "", tag: "4", answer: { whole: true } });
  assert.deepEqual(seen.pop(), { whole: true });
  assert.deepEqual(tags(), { [LIST]: "4" });
  take({ path: LIST, from: "3", tag: "4", answer: {} });
  take({ path: "/v1/other", from: "", tag: "9", answer: {} });
  assert.equal(seen.length, 0, "what is known, or followed by nobody here, is no news");
  stop();
  assert.deepEqual(tags(), {});
});

test("what changes another answer than the one that is here has it asked for again", () => {
  const seen: unknown[] = [];
  const stop = follow<unknown>(LIST, "1", { hosts: ["a"] }, (data) => seen.push(data));
  carry([LIST]);
  take({ path: LIST, from: "7", tag: "8", list: "hosts", nextPageToken: "", parts: [[0, 5]] });
  assert.deepEqual([seen.pop(), tags()[LIST], carries(LIST)], [null, "1", true]);
  take({ path: LIST });
  assert.deepEqual([seen.pop(), carries(LIST)], [null, false], "and so has what is told of no more");
  stop();
});

test("who follows the same twice is told twice, until both let go", () => {
  let changes = 0;
  onFollowed(() => (changes += 1));
  const seen: string[] = [];
  const stops = ["one", "two"].map((name) => follow<unknown>(LIST, "1", {}, () => seen.push(name)));
  take({ path: LIST, from: "1", tag: "2", answer: {} });
  assert.deepEqual([seen, changes], [["one", "two"], 1]);
  stops[0]?.();
  stops[0]?.();
  take({ path: LIST, from: "2", tag: "3", answer: {} });
  assert.deepEqual([seen, changes], [["one", "two", "two"], 1]);
  stops[1]?.();
  assert.equal(changes, 2);
});
