import assert from "node:assert/strict";
import { test } from "node:test";
import { CALL_BYTES, Input, WAITING_BYTES } from "../src/core/input.ts";
import type { Size } from "../src/core/input.ts";
import { broken, ending } from "../src/core/shell.ts";
import { ApiError } from "../src/core/api.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const turns = async (): Promise<void> => void (await new Promise((done) => setTimeout(done, 5)));

/** A shell that takes what `takes` says; every call that it got, as text. */
function shell(takes: (data: Uint8Array, call: number) => number | Promise<number>): { input: Input; calls: string[]; sizes: (Size | null)[] } {
  const calls: string[] = [];
  const sizes: (Size | null)[] = [];
  const input = new Input(async (data, size) => {
    calls.push(new TextDecoder().decode(data));
    sizes.push(size);
    return takes(data, calls.length);
  });
  return { input, calls, sizes };
}

test("what comes during a call goes with the next, in order", async () => {
  const { input, calls } = shell((data) => data.length);
  for (const key of "train") input.type(bytes(key));
  await turns();
  assert.deepEqual(calls, ["t", "rain"]);
});

test("a large paste goes in parts, whole", async () => {
  const { input, calls } = shell((data) => data.length);
  const pasted = "0123456789".repeat(10_000);
  input.type(bytes(pasted));
  input.type(bytes("!"));
  await turns();
  assert.equal(calls.join(""), `${pasted}!`);
  assert.ok(calls.every((call) => call.length <= CALL_BYTES) && calls.length === 4);
});

test("what is not taken is offered again, before what came after it", async () => {
  const { input, calls } = shell((data, call) => (call === 1 ? 0 : data.length));
  input.type(bytes("ab"));
  input.type(bytes("c"));
  await turns();
  assert.deepEqual(calls, ["ab", "abc"]);
});

test("a Ctrl-C takes the place of all that waits", async () => {
  let go: (taken: number) => void = () => undefined;
  const { input, calls } = shell((data, call) => (call === 1 ? new Promise((done) => (go = done)) : data.length));
  input.type(bytes("x".repeat(CALL_BYTES * 3)));
  input.type(bytes("\x03"));
  go(0);
  await turns();
  assert.deepEqual(calls.slice(1), ["\x03"]);
});

test("more than may wait is refused, and nothing passes after the end", async () => {
  const { input, calls } = shell(() => Promise.reject(new Error("ended")));
  assert.equal(input.type(new Uint8Array(WAITING_BYTES + 1)), false);
  input.type(bytes("x"));
  await turns();
  input.type(bytes("y"));
  await turns();
  assert.deepEqual(calls, ["x"]);
});

test("only the newest size is told", async () => {
  const { input, sizes } = shell((data) => data.length);
  for (const rows of [10, 20, 30]) input.resize({ rows, columns: 80 });
  await turns();
  assert.deepEqual(sizes, [{ rows: 10, columns: 80 }, { rows: 30, columns: 80 }]);
});

test("a size that did not arrive is told again, with the text or without", async () => {
  const [first, second] = [{ rows: 10, columns: 80 }, { rows: 20, columns: 80 }];
  const { input, calls, sizes } = shell((data, call) => (call === 1 ? -1 : call === 3 ? 0 : data.length));
  input.resize(first);
  await turns();
  input.resize(second);
  await turns();
  assert.deepEqual([calls, sizes], [["", "", ""], [first, first, second]]);
  const other = shell((data, call) => (call === 1 ? -1 : data.length));
  other.input.resize(first);
  other.input.type(bytes("a"));
  await turns();
  assert.deepEqual([other.calls.join(""), other.sizes.filter((size) => size)], ["a", [first, first]]);
});

test("an end is said in words", () => {
  assert.equal(ending({ data: "" }), "");
  assert.equal(ending({ exitStatus: 0 }), "The shell has ended with exit status 0.");
  assert.equal(ending({ problem: "its rank has ended." }), "The shell was ended: its rank has ended.");
  assert.equal(ending({ error: { message: "No." } }), "The shell was ended: No.");
  assert.match(broken(null), /connection broke/);
  assert.match(broken(new ApiError(0, "")), /controller does not answer/);
  assert.equal(broken(new ApiError(403, "Only its owner.")), "The shell was ended: Only its owner.");
});
