import assert from "node:assert/strict";
import { test } from "node:test";
import { overwritten, runs } from "../src/core/ansi.ts";

const shown = (line: string): string => runs(line)[0].map((run) => run.text).join("");

test("a string that another sequence interrupts ends there, and is not looked for again at each of its characters", () => {
  assert.equal(shown("\u0090a\u001bxb"), "b");
});

test("of the pictures of a bar only the last ones are looked at, however many there are", (of) => {
  let looked = 0;
  const own = String.prototype.replace as (...given: unknown[]) => never;
  of.mock.method(String.prototype, "replace", function (this: string, ...given: unknown[]) {
    looked += this.length;
    return own.apply(this, given);
  });
  const drawn = overwritten("x".repeat(8000) + "\rx".repeat(40_000) + "\r".repeat(40_000));
  of.mock.restoreAll();
  assert.equal(drawn, "x");
  assert.ok(looked < 400_000, `${looked} characters`);
});

test("a line of many colours has a bounded number of runs, and all of its text", () => {
  const [found] = runs("\u001b[31mx\u001b[0my".repeat(3000));
  assert.ok(found.length <= 210);
  assert.equal(found.map((run) => run.text).join(""), "xy".repeat(3000));
});

test("a sequence that another one interrupts takes nothing of it", () => {
  assert.deepEqual(runs("a\u001b]0;t\u001b[31mb")[0], [{ text: "a", look: "" }, { text: "b", look: "a-31" }]);
});

test("colours become looks, and reach into the next line", () => {
  const [first, pen] = runs("a\u001b[1;31mb");
  assert.deepEqual(first, [{ text: "a", look: "" }, { text: "b", look: "a-31 a-bold" }]);
  assert.deepEqual(runs("c\u001b[0md", pen)[0], [{ text: "c", look: "a-31 a-bold" }, { text: "d", look: "" }]);
});

test("256 colours, true colours and backgrounds take their parameters with them", () => {
  assert.deepEqual(runs("\u001b[38;5;9mx")[0], [{ text: "x", look: "a-91" }]);
  assert.deepEqual(runs("\u001b[38;2;1;31;3mx")[0], [{ text: "x", look: "" }]);
  assert.deepEqual(runs("\u001b[48;5;31mx")[0], [{ text: "x", look: "" }]);
});

test("everything that a terminal would obey is dropped", () => {
  for (const hostile of [
    "\u001b]0;title\u0007", "\u001b]8;;http://evil\u001b\\", "\u001b]52;c;AAAA\u0007", "\u001bP1$r\u001b\\", "\u001b[2J",
    "\u001b[6n", "\u001b[?1049h", "\u001bc", "\u009b31m", "\u009d0;t\u009c", "\u001b(0", "\u0007", "\u0000", "\u202e", "\u200b",
    "\u001b[>0;276;0c", "\u001b_x\u001b\\", "\u001b^x\u001b\\", "\u001bXx\u001b\\",
  ]) {
    assert.equal(shown(`a${hostile}b`), "ab", JSON.stringify(hostile));
  }
});

test("a sequence without an end takes no more than its line", () => {
  assert.equal(shown("a\u001b]0;never closed"), "a");
  assert.equal(shown("a\u001b[31"), "a");
  assert.equal(shown("a\u001b"), "a");
});

test("a progress bar shows its last picture", () => {
  assert.equal(overwritten("10%\r20%\r30%\r"), "30%");
  assert.equal(overwritten("long picture\rshort"), "shortpicture");
  assert.equal(overwritten("done\r"), "done");
  assert.equal(shown("\u001b[32m 50%\r\u001b[32m100%"), "100%");
});

test("hostile input costs linear time", () => {
  const began = process.cpuUsage().user;
  runs("\u001b[".repeat(50_000));
  runs("\u001b]".repeat(50_000));
  runs("a\r".repeat(8_000));
  assert.ok(process.cpuUsage().user - began < 5_000_000);
});
