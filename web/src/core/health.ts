/** A host's health in words: what is bad of it, what was done about that, what ends it, and how often it fails. */
import type { Check, Host, HostEvent, Reliability } from "./types/host.ts";
import { age, clock, epoch, fixed, shellWord, whole } from "./words.ts";

/** An enum's value, which is UNSPECIFIED where there is none. */
const set = (value: string | null | undefined): string => (value && value !== "UNSPECIFIED" ? value : "");

/** `degraded`, `cordon, waived by an admin`, or how bad a check is that is not about hardware. */
export function checkClass(check: Check): string {
  const found = set(check.health);
  if (!found) return check.status.toLowerCase();
  const waived = set(check.waived) === "ADMIN" ? ", waived by an admin" : set(check.waived) ? ", waived: a common cause?" : "";
  return `${found.toLowerCase()}${waived}`;
}

/** Whether the host gets no new work because of it. */
export const keepsAway = (check: Check): boolean => check.keepsWorkAway && !set(check.waived);

/** What the controller has done about a check that fails. */
export function done(check: Check): string {
  if (keepsAway(check)) return "It gets no new work; what runs there runs on";
  if (check.keepsWorkAway && set(check.waived) === "ADMIN") return "Nothing: an admin has let the host have work in spite of it";
  if (check.keepsWorkAway) return "Nothing: so many hosts have such findings at once that a common cause is likelier";
  return set(check.health) === "INFORM" ? "Nothing: it is worth knowing, and no one was notified" : "It is reported; work goes there as before";
}

/** What ends it by itself. */
export function over(check: Check): string {
  const health = set(check.health);
  if (health === "FAIL") return "The next boot of the host";
  return health ? "It ends by itself, some minutes after all is well" : "It ends by itself, some minutes after the check passes again";
}

/** For each GPU that is out of service: what brings it back, by itself or by command. */
export function repairs(host: Pick<Host, "name" | "gpus">): { words: string; command: string }[] {
  return host.gpus.filter((gpu) => gpu.faults.length).map((gpu) => {
    const boot = gpu.faults.some((fault) => fault.repair === "REBOOT");
    const until = boot ? "the host has booted" : "the driver has enumerated it again after a reset, the host has booted";
    return {
      words: `GPU ${gpu.index}: ${gpu.faults.map((fault) => fault.cause).join(", ")}: out of service until ${until}, or:`,
      command: `holdfast host uncordon ${shellWord(host.name)} --gpu ${gpu.index}`,
    };
  });
}

export interface Closed {
  check: string;
  what: string;
  saw: string;
  /** Null where its beginning is older than the history that is shown. */
  from: number | null;
  to: number;
}

/** Checks that failed and pass again since a moment, the newest first; each time counts. */
export function closed(history: readonly HostEvent[], since: number): Closed[] {
  const open = new Map<string, { from: number; check: Check }>();
  const found: Closed[] = [];
  for (const { time, event } of [...history].sort((a, b) => a.cursor - b.cursor)) {
    const at = epoch(time);
    if (at === null || !event) continue;
    if (event.kind === "check_failed" && typeof event.check === "object") {
      open.set(event.check.check, { from: open.get(event.check.check)?.from ?? at, check: event.check });
    } else if (event.kind === "check_passed" && typeof event.check === "string") {
      const known = open.get(event.check);
      open.delete(event.check);
      if (at >= since) found.push({ check: event.check, what: known ? checkClass(known.check) : "", saw: known?.check.saw ?? "", from: known?.from ?? null, to: at });
    }
  }
  return found.reverse();
}

const KINDS: Record<string, string> = { lost: "lost", rebooted: "rebooted", gpu: "GPU condemned", ranks: "ranks lost to it", finding: "ill hardware" };

/** From such a lower bound on the controller prefers a host's equals. */
const SURELY = 1.05;

/** How often the host fails and how long it is out then, as `holdfast host show` prints it. */
export function reliability(found: Reliability | undefined, now: number): string[] {
  const since = epoch(found?.since);
  if (!found || since === null) return [];
  const kinds = Object.entries(found.kinds).sort().map(([kind, number]) => `${number} ${KINDS[kind] ?? kind}`).join(", ");
  const failures = found.failures === 1 ? "1 failure" : `${found.failures || "no"} failures`;
  const lines = [`${failures} in ${age(found.inService ?? 0)} of service since ${clock(since, now)}${kinds && `: ${kinds}`}`];
  if (found.mtbfLow !== null) {
    const mtbf = found.failures ? interval(found.mtbf, found.mtbfLow, found.mtbfHigh) : `> ${age(found.mtbfLow)}`;
    lines.push(`MTBF ${mtbf}${found.repairs ? `, MTTR ${interval(found.mttr, found.mttrLow, found.mttrHigh)}` : ""}`);
  }
  if (found.lemon) {
    lines.push(`a lemon: it fails ${fixed(found.ratio, 1)} times as often as the others, at least ${fixed(found.ratioLow, 1)} times (surprise ${whole(found.surprise)} bits); after a repair:`);
  } else if (found.ratioLow >= SURELY) {
    lines.push(`fails ${fixed(found.ratio, 1)} times as often as the others, at least ${fixed(found.ratioLow, 1)} times: of equal hosts the others get new work first`);
  }
  return lines;
}

const interval = (mean: number | null, low: number | null, high: number | null): string => `${age(mean ?? 0)} (${age(low ?? 0)}-${age(high ?? 0)})`;
