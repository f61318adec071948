import assert from "node:assert/strict";
import { test } from "node:test";
import { age, commandAtEnd, count, ended, epoch, fixed, jsonText, look, oneLine, percent, ranges, shellWord, short, span, stateName, whole } from "../src/core/words.ts";

test("times are in the command line's words", () => {
  assert.deepEqual([0, 59, 60, 3600, 86_400, 172_800, -5].map(age), ["0s", "59s", "1m", "1h", "24h", "2d", "0s"]);
  assert.deepEqual(
    [0.84, 9.99, 42.9, 192, 7500, 273_600, 60, 3600, -1].map(span),
    ["0.8s", "10.0s", "42s", "3m 12s", "2h 5m", "3d 4h", "1m", "1h", "0.0s"],
  );
  assert.deepEqual([0.11, 0.9994, 0.9996, 2.9, 192, -1].map(short), ["110ms", "999ms", "1.0s", "2.9s", "3m 12s", "0ms"]);
});

test("times that are absent or are none", () => {
  assert.equal(epoch(null), null);
  assert.equal(epoch(""), null);
  assert.equal(epoch("yesterday"), null);
  assert.equal(epoch("1970-01-01T00:00:01.5Z"), 1.5);
});

test("ranks in a row are one range", () => {
  assert.equal(ranges([7, 0, 1, 2, 5, 6, 5]), "0-2,5-7");
  assert.equal(ranges([]), "");
});

test("states have a name, a look and an end", () => {
  assert.equal(stateName("JOB_STATE_RUNNING"), "RUNNING");
  assert.equal(stateName("READY"), "READY");
  assert.equal(look("JOB_STATE_EXPIRED"), "bad");
  assert.equal(look("JOB_STATE_OF_TOMORROW"), "stopped");
  assert.equal(ended("JOB_STATE_CANCELLING"), false);
  assert.equal(ended("JOB_STATE_CANCELLED"), true);
});

test("what others wrote stays on one line, in its place, and is seen", () => {
  assert.equal(oneLine("a\n\tb\r\nc"), "a b c");
  assert.equal(oneLine("a\u202eb\u200bc\u0000\u001b[31m"), "a□b□c□□[31m");
  assert.equal(oneLine("训练 🚀 שלום"), "训练 🚀 שלום");
  assert.equal(oneLine("a\u3164\u115f\u2800\u{e0041}b"), "a□□□□b");
  assert.equal(oneLine("\u0645\u06cc\u200c\u062e \u{1f469}\u200d\u{1f4bb}"), "\u0645\u06cc\u062e \u{1f469}\u{1f4bb}");
});

test("a job file is shown in the order in which it is, and reads back", () => {
  const file = { args: ["a\u202eb", "\u{e0041}\ud800", "zwei\nZeilen é🚀"] };
  assert.deepEqual(JSON.parse(jsonText(file)), file);
  assert.equal(jsonText(file).split("\n").map((line) => line.trim())[2], '"a\\u202eb",');
  assert.match(jsonText(file), /^[ -~\né🚀]*$/u);
});

test("words for the shell are in quotes where they must be", () => {
  assert.equal(shellWord("train-x7k2mq"), "train-x7k2mq");
  assert.equal(shellWord("a b'c"), `'a b'"'"'c'`);
  assert.equal(shellWord(""), "''");
  assert.equal(count(1, "GPU"), "1 GPU");
  assert.equal(count(8192, "rank"), "8,192 ranks");
});

test("a command at the end of a sentence is apart from it, whatever the sentence says before", () => {
  assert.deepEqual(commandAtEnd("its lease is over; jobs are moved by: holdfast host fence h1"), ["its lease is over; jobs are moved by:", "holdfast host fence h1"]);
  assert.deepEqual(commandAtEnd("see (holdfast job stacks a), relaunch by: holdfast job restart a"), ["see (holdfast job stacks a), relaunch by:", "holdfast job restart a"]);
  assert.deepEqual(commandAtEnd("draining: new power supply"), ["draining: new power supply", ""]);
});

test("halves are rounded as the command line rounds them", () => {
  assert.deepEqual([0.0625, 0.1875, 0.00051, 1].map(percent), ["6.2 %", "18.8 %", "0.1 %", "100.0 %"]);
  assert.deepEqual([0.25, 0.35, 0.75, 2.25, 1.05].map((each) => fixed(each, 1)), ["0.2", "0.3", "0.8", "2.2", "1.1"]);
  assert.deepEqual([0, 0.4, 0.5, 1.5, 2.5, 3.5, 4.5, 4.51, 1e6].map(whole), ["0", "0", "0", "2", "2", "4", "4", "5", "1000000"]);
});
