import assert from "node:assert/strict";
import { test } from "node:test";
import { overwritten, runs } from "../src/core/ansi.ts";

const shown = (line: string): string => runs(line)[0].map((run) => run.text).join("");

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

test("a sequence without an end ends at the next one", () => {
  assert.equal(shown("a\u001b]0;title\u001b[1mb"), "ab");
  assert.equal(shown("a\u0090x\u001bcb"), "ab");
});

test("a line is drawn in few pieces; those past them are plain, and the colour reaches on", () => {
  const [found, pen] = runs("\u001b[31mx\u001b[32my".repeat(4000));
  assert.equal(found.length, 201);
  assert.deepEqual(found[199], { text: "y", look: "a-32" });
  assert.deepEqual([found[200]?.text.length, found[200]?.look], [7800, ""]);
  assert.equal(pen.foreground, "a-32");
});

test("a progress bar shows its last picture", () => {
  assert.equal(overwritten("10%\r20%\r30%\r"), "30%");
  assert.equal(overwritten("long picture\rshort"), "shortpicture");
  assert.equal(overwritten("the longest\rlonger\rend"), "endgerngest");
  assert.equal(overwritten("the longest\rlonger\u001b[K\rend"), "endger");
  assert.equal(overwritten("done\r"), "done");
  assert.equal(shown("\u001b[32m 50%\r\u001b[32m100%"), "100%");
});

test("a picture that is erased leaves nothing of itself", () => {
  assert.equal(shown("Downloading a long name\r\u001b[2Kdone"), "done");
  assert.equal(shown("Downloading a long name\u001b[2K\rdone").trimEnd(), "done");
  assert.equal(shown("Downloading a long name\r\u001b[0Kdone"), "done");
  assert.equal(shown("\u001b[32m10%\u001b[2Kx"), "   x");
  assert.equal(overwritten("the longest\rab\u001b[1K\rc"), "c e longest");
  assert.deepEqual(runs("abc\u001b[31m\u001b[2K\rfail")[0].map((run) => run.text), ["fail"]);
});

test("letters and emoji keep their joiners", () => {
  for (const word of ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u{1f469}\u200d\u{1f4bb}"]) assert.equal(shown(word), word);
});

test("hostile input costs linear time", () => {
  // Each takes milliseconds, and many seconds where it is quadratic.
  for (const hostile of [
    "\u001b[".repeat(50_000), "\u001b]".repeat(50_000), `${"\u0090".repeat(60_000)}\u001bx`, "a\r".repeat(60_000), `${"\r".repeat(60_000)}x`,
    `${"x".repeat(60_000)}${"\rx".repeat(60_000)}`, "\u001b[2K".repeat(50_000), "x\u001b[1K\r".repeat(20_000),
    `\u001b[${"0".repeat(60_000)}\u0001`, `\u001b${" ".repeat(60_000)}\u0001`,
  ]) {
    const began = process.cpuUsage().user;
    runs(hostile);
    assert.ok(process.cpuUsage().user - began < 3_000_000, JSON.stringify(hostile.slice(0, 5)));
  }
});
