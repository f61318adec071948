import assert from "node:assert/strict";
import { test } from "node:test";
import { againInMs, areaPath, axis, charts, firstSteps, linePath, missing, pointAt, quantity, summed } from "../src/core/charts.ts";
import type { Series, SeriesPage } from "../src/core/types/records.ts";
import { at, job, T0 } from "./job.ts";

function page(set: Partial<SeriesPage>): SeriesPage {
  return { since: at(0), step: 60, points: 4, series: [], recordings: [], problem: "", nextPageToken: "", keptSince: at(0), ...set };
}

const band = (figure: string, unit: string, ...rows: (number | null)[][]): Series[] =>
  rows.map((mean, index) => ({ figure, unit, rank: null, quantile: [0, 0.1, 0.5, 0.9, 1][index] ?? 1, mean }));
const five = (figure: string, unit: string, mean: (number | null)[]): Series[] => band(figure, unit, mean, mean, mean, mean, mean);
const one = (figure: string, rank: number, mean: (number | null)[]): Series => ({ figure, unit: "%", rank, quantile: null, mean });

test("bands are by share whatever their order, ranks that differ are named, the unknown stays unknown", () => {
  const spread = band("gpu_util", "%", [1, 1, null, 1], [2, 2, null, 2], [90, 91, null, 92], [97, 97, null, 97], [99, 99, null, 99]);
  const [chart, ...others] = charts([page({ series: [one("gpu_util", 3, [5, 5, 5, 5]), ...spread.reverse()] })]);
  assert.deepEqual(others, []);
  assert.deepEqual(chart?.bands.middle, [90, 91, null, 92]);
  assert.deepEqual(chart?.bands.most, [99, 99, null, 99]);
  assert.deepEqual(chart?.odd, [{ rank: 3, values: [5, 5, 5, 5] }]);
  assert.deepEqual(chart?.times, [0, 60, 120, 180].map((each) => T0 + each));
});

test("pages follow each other on one axis, also where a rank differs in one of them alone", () => {
  const [chart] = charts([
    page({ points: 2, series: five("power", "W", [1, 2]) }),
    page({ since: at(120), points: 2, series: [...five("power", "W", [3, 4]), { ...one("power", 7, [9, 9]), unit: "W" }] }),
  ]);
  assert.deepEqual(chart?.bands.middle, [1, 2, 3, 4]);
  assert.deepEqual(chart?.odd, [{ rank: 7, values: [null, null, 9, 9] }]);
});

test("figures come in one order, and what nothing is known of is no chart", () => {
  const found = charts([page({ series: [...five("cpu", "cores", [1, 1, 1, 1]), ...five("gpu_util", "%", [1, 1, 1, 1]), ...five("power", "W", [null, null, null, null])] })]);
  assert.deepEqual(found.map((chart) => chart.figure), ["gpu_util", "cpu"]);
});

test("the pace is of steps that rise, and unknown across a restart and a gap", () => {
  const [steps, pace] = charts([page({ points: 6, series: five("step", "", [100, 160, 40, 100, null, 220]) })]);
  assert.equal(steps?.figure, "step");
  assert.deepEqual(pace?.bands.middle, [null, 60, null, 60, null, null]);
  assert.equal(pace?.unit, "steps/min");
});

test("each generation's first steps are found on the axis", () => {
  const [steps] = charts([page({ points: 6, series: five("step", "", [null, 160, 170, null, 100, 220]) })]);
  const generations = [{ number: 1, from: T0, to: T0 + 180 }, { number: 2, from: T0 + 180, to: T0 + 300 }, { number: 3, from: T0 + 999, to: T0 + 1000 }];
  assert.deepEqual(firstSteps(steps!, generations), [{ generation: 1, at: T0 + 60 }, { generation: 2, at: T0 + 240 }]);
  const within = [{ number: 1, from: T0 + 70, to: T0 + 130 }, { number: 2, from: T0 + 140, to: T0 + 300 }];
  assert.deepEqual(firstSteps(steps!, within), [{ generation: 1, at: T0 + 70 }, { generation: 2, at: T0 + 240 }], "the minute in which it began counts, unless another ran in it");
});

test("shares have the whole as their axis, what varies little does not begin at 0, what is constant has a height", () => {
  const of = (unit: string, mean: number[]): [number, number] => axis(charts([page({ series: five("gpu_util", unit, mean) })])[0]!);
  assert.deepEqual(of("%", [3, 4, 5, 6]), [0, 100]);
  assert.deepEqual(of("W", [600, 610, 640, 700]), [600, 700]);
  assert.deepEqual(of("W", [10, 610, 640, 700]), [0, 700]);
  assert.deepEqual(of("W", [0, 0, 0, 0]), [0, 1]);
});

test("lines and areas break where nothing is known, and a point alone is seen", () => {
  const same = (value: number): number => value;
  assert.equal(linePath([1, 2, null, 4, null], same, same), "M0.0 1.0L1.0 2.0M3.0 4.0m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0");
  assert.equal(areaPath([1, 1, null, 1], [2, 2, 2, 2], same, same), "M0.0 2.0L1.0 2.0L1.0 1.0L0.0 1.0ZM1.0 2.0h4V1.0h-4Z");
});

test("sums are of the range that is shown", () => {
  const [chart] = charts([page({ series: band("power", "W", [1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9], [10, 20, 30, 40]) })]);
  assert.deepEqual(summed(chart!, T0 + 60, T0 + 179), { least: 2, mean: 6.5, most: 30, newest: 7 });
  assert.deepEqual(summed(chart!, T0 + 9000, T0 + 9999), { least: null, mean: null, most: null, newest: null });
  assert.equal(pointAt(chart!, T0 + 119), 1);
  assert.equal(pointAt(chart!, T0 + 240), -1);
  assert.equal(pointAt(chart!, T0 - 1), -1);
});

test("quantities have three digits or so and their unit", () => {
  assert.equal(quantity(98.4, "%"), "98.4 %");
  assert.equal(quantity(71.25 * 2 ** 30, "bytes"), "71.3 GiB");
  assert.equal(quantity(1.234e9, "bytes/s"), "1.23 GB/s");
  assert.equal(quantity(48_120, ""), "48,120");
  assert.equal(quantity(61, "C"), "61 °C");
});

test("what is missing is said, with its reason", () => {
  const cpu = charts([page({ series: five("cpu", "cores", [1, 1, 1, 1]) })]);
  assert.equal(missing(job(), 4, [], undefined, T0), "");
  assert.match(missing(job({ startTime: null }), 4, [], page({}), T0), /has started yet/);
  assert.match(missing(job(), 4, [], page({}), T0 + 60), /first minute/);
  assert.match(missing(job({ endTime: at(60) }), 4, [], page({}), T0 + 60), /less than a minute/);
  assert.match(missing(job(), 4, cpu, page({}), T0 + 600), /driver/);
  assert.match(missing(job(), 0, cpu, page({}), T0 + 600), /asks for no GPU/);
  assert.equal(missing(job(), 4, charts([page({ series: five("power", "W", [1, 1, 1, 1]) })]), page({}), T0 + 600), "");
  assert.equal(missing(job(), 4, cpu, page({ problem: "its disk is full" }), T0), "its disk is full");
  assert.match(missing(job(), 4, cpu, page({ nextPageToken: "60" }), T0), /newest part is missing/);
});

test("a chart is asked for again as often as a point of it can have changed", () => {
  assert.deepEqual([2, 60, 600, 25_920].map(againInMs), [30_000, 30_000, 300_000, 900_000]);
});
