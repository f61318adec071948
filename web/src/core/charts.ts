/** Figures of ranks over time, as charts: how they are spread over the ranks, and which ranks differ. */
import type { Job } from "./types/job.ts";
import type { SeriesPage } from "./types/records.ts";
import type { Strip } from "./strip.ts";
import { epoch } from "./words.ts";

export type Values = (number | null)[];

export interface Chart {
  figure: string;
  title: string;
  unit: string;
  /** Epoch seconds at which each point begins. */
  times: number[];
  /** Seconds that a point spans. */
  step: number;
  /** Of the ranks at each point: the least, a tenth, half, nine tenths and the most of them. */
  bands: { least: Values; low: Values; middle: Values; high: Values; most: Values };
  /** Ranks that differ from the others, the farthest first. */
  odd: { rank: number; values: Values }[];
}

const TITLES: Record<string, string> = {
  step: "Step",
  pace: "Pace",
  gpu_util: "GPU utilisation",
  memory_used: "GPU memory",
  power: "Power",
  cpu: "CPU",
  sm_util: "Multiprocessors busy",
  memory_util: "Memory bandwidth",
  temperature: "Temperature",
  sm_clock: "Clock",
  nvlink: "NVLink",
  pcie: "PCIe",
};

/** What is shown at first, in this order; the rest on demand. */
export const FIRST = ["step", "gpu_util", "memory_used", "power", "cpu"] as const;
export const REST = ["sm_util", "memory_util", "temperature", "sm_clock", "nvlink", "pcie"] as const;
const OF_GPUS = new Set<string>(["gpu_util", "memory_used", "power", ...REST]);
/** More lines than that are told apart by nothing. */
const ODD_MOST = 4;
const BANDS = ["least", "low", "middle", "high", "most"] as const;

/** The charts of an answer's pages, those of which nothing is known left out. */
export function charts(pages: readonly SeriesPage[]): Chart[] {
  const found = new Map<string, Chart>();
  for (const page of pages) {
    const begins = epoch(page.since) ?? 0;
    for (const figure of new Set(page.series.map((each) => each.figure))) {
      const name = TITLES[figure];
      if (!name) continue;
      const mine = page.series.filter((each) => each.figure === figure);
      const chart = found.get(figure) ?? blank(figure, name, mine[0]?.unit ?? "", page.step);
      found.set(figure, chart);
      const before = chart.times.length;
      for (let at = 0; at < page.points; at++) chart.times.push(begins + at * page.step);
      chart.step = page.step;
      const quantiles = mine.filter((each) => each.quantile !== null).sort((a, b) => (a.quantile ?? 0) - (b.quantile ?? 0));
      for (const [index, band] of BANDS.entries()) {
        chart.bands[band].push(...padded(quantiles[index]?.mean, page.points));
      }
      for (const each of mine) {
        if (each.rank === null) continue;
        let line = chart.odd.find((one) => one.rank === each.rank);
        if (!line) {
          if (chart.odd.length >= ODD_MOST) continue;
          line = { rank: each.rank, values: Array<null>(before).fill(null) };
          chart.odd.push(line);
        }
        line.values.push(...padded(each.mean, page.points));
      }
      for (const line of chart.odd) while (line.values.length < chart.times.length) line.values.push(null);
    }
  }
  const known = [...found.values()].filter((chart) => chart.bands.middle.some((value) => value !== null));
  const step = known.find((chart) => chart.figure === "step");
  const rate = step && pace(step);
  return [...FIRST, ...REST].flatMap((figure) => {
    const chart = known.find((each) => each.figure === figure);
    if (!chart) return [];
    return figure === "step" && rate ? [chart, rate] : [chart];
  });
}

function blank(figure: string, title: string, unit: string, step: number): Chart {
  return { figure, title, unit, times: [], step, bands: { least: [], low: [], middle: [], high: [], most: [] }, odd: [] };
}

function padded(values: Values | undefined, points: number): Values {
  return Array.from({ length: points }, (_, index) => values?.[index] ?? null);
}

/** Steps a minute between neighbouring points; unknown across gaps and restarts, where steps fall. Null if never known. */
export function pace(steps: Chart): Chart | null {
  const found = blank("pace", TITLES["pace"] ?? "", "steps/min", steps.step);
  found.times = steps.times;
  for (const band of BANDS) found.bands[band] = rises(steps.bands[band], steps.times);
  // The slowest at one moment need not be the slowest at the next: only the middle's rise is a pace that some rank had.
  const { middle } = found.bands;
  if (!middle.some((value) => value !== null)) return null;
  found.bands = { least: middle, low: middle, middle, high: middle, most: middle };
  found.odd = steps.odd.map(({ rank, values }) => ({ rank, values: rises(values, steps.times) }));
  return found;
}

function rises(values: Values, times: readonly number[]): Values {
  return values.map((value, index) => {
    const before = values[index - 1];
    const spent = (times[index] ?? 0) - (times[index - 1] ?? 0);
    if (value === null || before === null || before === undefined || value < before || spent <= 0) return null;
    return (60 * (value - before)) / spent;
  });
}

const LEAST_MS = 30_000;
const MOST_MS = 900_000;

/** Until a chart is asked for again, by the seconds that a point spans: minutes come once a minute, and to read 90 days of them takes long. */
export const againInMs = (step: number): number => Math.min(MOST_MS, Math.max(LEAST_MS, 500 * step));

/** The least and most value of the axis. Shares are of the whole; what varies little is not drawn from 0. */
export function axis(chart: Chart): [number, number] {
  const known = [chart.bands.least, chart.bands.most, ...chart.odd.map((each) => each.values)].flat().filter((value) => value !== null);
  const [low, high] = known.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  if (chart.unit === "%") return [0, Math.max(100, high)];
  const from = low < 0.7 * high ? 0 : low;
  return high > from ? [from, high] : [Math.max(0, from - 1), from + 1];
}

/** A line through the known values, and a ring around each that has no neighbour. */
export function linePath(values: Values, at: (index: number) => number, y: (value: number) => number): string {
  let path = "";
  let open = false;
  for (const [index, value] of values.entries()) {
    if (value === null) open = false;
    else {
      path += `${open ? "L" : "M"}${at(index).toFixed(1)} ${y(value).toFixed(1)}`;
      // A point alone would not be seen: it is a ring.
      if (!open && (values[index + 1] ?? null) === null) path += "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0";
      open = true;
    }
  }
  return path;
}

/** The area between two lines, where both are known; a bar where only one point is. */
export function areaPath(low: Values, high: Values, at: (index: number) => number, y: (value: number) => number): string {
  let path = "";
  let run: number[] = [];
  const close = (): void => {
    const [only = 0] = run;
    if (run.length === 1) path += `M${(at(only) - 2).toFixed(1)} ${y(high[only] ?? 0).toFixed(1)}h4V${y(low[only] ?? 0).toFixed(1)}h-4Z`;
    if (run.length > 1) {
      const point = (values: Values, index: number): string => `${at(index).toFixed(1)} ${y(values[index] ?? 0).toFixed(1)}`;
      path += `M${run.map((index) => point(high, index)).join("L")}L${run.reverse().map((index) => point(low, index)).join("L")}Z`;
    }
    run = [];
  };
  for (let index = 0; index < low.length; index++) {
    if (low[index] === null || high[index] === null) close();
    else run.push(index);
  }
  close();
  return path;
}

const SCALES: readonly (readonly [number, string])[] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** `98 %`, `71.2 GiB`, `350 W`, `1.2 GB/s`, `48,120`. */
export function quantity(value: number, unit: string): string {
  if (unit === "bytes") return `${three(value / 2 ** 30)} GiB`;
  if (unit === "bytes/s") {
    const [size, prefix] = SCALES.find(([each]) => value >= each) ?? [1, ""];
    return `${three(value / size)} ${prefix}B/s`;
  }
  return `${three(value)}${unit ? ` ${unit === "C" ? "°C" : unit}` : ""}`;
}

function three(value: number): string {
  if (Math.abs(value) >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(3)).toString();
}

export interface Sum {
  least: number | null;
  mean: number | null;
  most: number | null;
  newest: number | null;
}

/** What a chart comes to within a range: the table's twin of the picture. */
export function summed(chart: Chart, from: number, to: number): Sum {
  const within = (values: Values): number[] =>
    values.filter((value, index): value is number => value !== null && (chart.times[index] ?? 0) + chart.step > from && (chart.times[index] ?? 0) <= to);
  const [least, middle, most] = [within(chart.bands.least), within(chart.bands.middle), within(chart.bands.most)];
  const reduced = (values: number[], take: (a: number, b: number) => number): number | null => (values.length ? values.reduce((a, b) => take(a, b)) : null);
  return {
    least: reduced(least, Math.min),
    mean: middle.length ? middle.reduce((a, b) => a + b, 0) / middle.length : null,
    most: reduced(most, Math.max),
    newest: middle.at(-1) ?? null,
  };
}

/** The point at a moment; -1 where there is none. */
export function pointAt(chart: Chart, moment: number): number {
  const { times } = chart;
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) <= moment) low = middle + 1;
    else high = middle;
  }
  return low > 0 && moment < (times[low - 1] ?? 0) + chart.step ? low - 1 : -1;
}

/** Since when each generation is known to make steps, to a point's length. */
export function firstSteps(step: Chart, generations: Strip["generations"]): { generation: number; at: number }[] {
  return generations.flatMap(({ number, from, to }, nth) => {
    // A point that began before the generation did is of it where no other ran by then.
    const before = generations[nth - 1]?.to ?? -Infinity;
    const of = (time: number): boolean => time < to && (time >= from || (time + step.step > from && time >= before));
    const index = step.times.findIndex((time, each) => of(time) && (step.bands.middle[each] ?? null) !== null);
    return index < 0 ? [] : [{ generation: number, at: Math.max(from, step.times[index] ?? from) }];
  });
}

/** Why there is no chart, or not all that one would expect; empty where nothing is missing. */
export function missing(job: Job, gpus: number, found: readonly Chart[], last: SeriesPage | undefined, now: number): string {
  if (!last) return "";
  if (last.problem) return last.problem;
  if (last.nextPageToken) return "The newest part is missing: to read all of this time takes too long. Choose a shorter one above.";
  const start = epoch(job.startTime);
  if (!found.length) {
    if (start === null) return "Nothing was measured: no rank has started yet.";
    if (now - start < 150 && !job.endTime) return "The first minute is measured now; charts begin when it is over.";
    if (job.endTime) return "Nothing is kept of this time: the job ran for less than a minute, or it ended longer ago than series are kept.";
    return "No minute of it came from its hosts: they may not be heard from, or their agents are of an older release.";
  }
  if (found.some((chart) => OF_GPUS.has(chart.figure))) return "";
  return gpus
    ? "No figure of a GPU came: the driver on its hosts tells none. On a host, holdfast doctor says what it sees."
    : "The job asks for no GPU, so there is no figure of one.";
}
