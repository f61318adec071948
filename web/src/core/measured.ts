/** What active checks have measured of a host, in the words of `holdfast host show`. */
import type { Measurement, Measurements } from "./types/host.ts";
import { clock, epoch } from "./words.ts";

const UNITS: Record<string, string> = {
  "cpu.hash": "MB/s", "memory.copy": "GB/s", "disk.write": "MB/s", "gpu.matmul": "TFLOP/s", "gpu.memory": "GB/s", "gpu.to_device": "GB/s",
  "gpu.from_device": "GB/s", "gpu.all_reduce": "GB/s", "net.tcp": "GB/s", "net.all_reduce": "GB/s",
};
const REASONS: Record<string, string> = {
  ASKED: "an admin asked", REPEAT: "it was slower than others", RETURNED: "it has returned", JOINED: "it is new",
  SUSPECTED: "it was under suspicion", ROUTINE: "its last check was long ago",
};

/** The newest result of the host alone and of a pair. */
export function newest(of: Measurements): Measurement[] {
  const found = new Map(of.results.map((each) => [each.partner !== "", each]));
  return [...found.values()];
}

/** The lines of the command line: the newest results, and what comes next. */
export function measured(of: Measurements | undefined, now: number): string[] {
  if (!of) return [];
  return [...newest(of).map((each) => `${clock(epoch(each.time) ?? 0, now)}: ${inWords(each, of.usual)}`), next(of)].filter(Boolean);
}

/** The check that runs, or is due; empty where none is. */
export function next(of: Measurements): string {
  if (of.runningJobId) return `it is being checked by the job ${of.runningJobId}`;
  return of.due !== "UNSPECIFIED" ? `a check is due: ${REASONS[of.due] ?? of.due.toLowerCase()}` : "";
}

function inWords(result: Measurement, usual: Record<string, number>): string {
  const pair = result.partner ? `with ${result.partner}: ` : "";
  if (result.outcome !== "MEASURED") return `${pair}${result.outcome === "STOPPED" ? "stopped" : "could not be measured"}: ${result.problem}`;
  const names = Object.keys(result.figures).sort();
  const figures = names.map((name) => `${name} ${figure(name, result.figures[name] ?? 0)}${others(usual[name])}`).join(", ");
  return pair + figures + (result.problem ? `; not measured: ${result.problem}` : "");
}

const others = (usual: number | undefined): string => (usual === undefined ? "" : ` (others ${shown(usual)})`);

/** A figure with its unit: `812 MB/s`. */
export function figure(name: string, value: number): string {
  const unit = UNITS[name];
  return shown(value) + (unit ? ` ${unit}` : "");
}

/** Three digits. */
export function shown(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}
