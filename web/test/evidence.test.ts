import assert from "node:assert/strict";
import { test } from "node:test";
import { groupWords, rankWords, stacks } from "../src/core/evidence.ts";
import type { WorkerEvidence } from "../src/core/types/records.ts";

type Place = NonNullable<WorkerEvidence["stacks"]>[number];

const place = (rank: number, set: Partial<Place> = {}): Place => ({
  rank, group: "a", place: "all_reduce", waits: true, moving: "same", collective: "", problem: "", ...set,
});

function worker(name: string, found: Place[], frames: [string, string, number][] = []): WorkerEvidence {
  const ranks = found.map(({ rank }) => ({ ...(rank && { rank }), process: { looks: [{ python: { threads: [{ frames: [0] }, { main: true, frames: [0, 1, 9] }] } }] } }));
  return { worker: name, host: "h", problem: "", stacks: found, evidence: { frames, ranks } };
}

test("ranks of all workers that are at the same place are one group, the odd one first", () => {
  const odd = place(3, { group: "b", place: "data_loader.py:26 `queue.get`", waits: false });
  const found = stacks([worker("workerpool0-0", [place(0), place(1)]), worker("workerpool1-0", [place(2, { moving: "moving" }), odd])]);
  assert.deepEqual(found.groups.map(groupWords), [
    "rank 3 is in data_loader.py:26 `queue.get` (the same in both looks)",
    "3 ranks wait in all_reduce (some moving, some the same)",
  ]);
  assert.deepEqual(found.groups[1]?.ranks.map((each) => `${each.worker} ${each.rank}`), ["workerpool0-0 0", "workerpool0-0 1", "workerpool1-0 2"]);
});

test("frames are those of the main thread, without where a library is installed", () => {
  const frames: [string, string, number][] = [["get", "/usr/lib/python3.11/queue.py", 171], ["all_reduce", "/x/site-packages/torch/distributed.py", 0]];
  const [group] = stacks([worker("w", [place(0)], frames)]).groups;
  assert.deepEqual(group?.frames, [{ function: "get", place: "queue.py:171" }, { function: "all_reduce", place: "torch/distributed.py" }]);
});

test("what there is no stack of is told with its reason, and what flight recorders say once", () => {
  const found = stacks([
    worker("w", [place(0, { collective: "in all_reduce #7" }), place(1, { collective: "in all_reduce #7" }), place(2, { group: "", problem: "has ended" })]),
    { worker: "v", host: "", problem: "nothing came", stacks: [], evidence: null },
    { worker: "old", host: "", problem: "", evidence: null },
  ]);
  assert.deepEqual(found.problems, ["w rank 2: has ended", "v: nothing came"]);
  assert.deepEqual(found.collectives, [{ ranks: [0, 1], words: "in all_reduce #7" }]);
  assert.equal(rankWords([0, 1]), "ranks 0-1");
});
