/** A silent host's moments, in order: those that were, now, and those that come unless it is heard again. */
import type { Host, HostEvent } from "./types/host.ts";
import { epoch, span } from "./words.ts";

export interface Moment {
  at: number | null;
  words: string;
  when: "was" | "now" | "comes";
}

export function silence(host: Host, history: readonly HostEvent[], now: number): Moment[] {
  const heard = epoch(host.silentSince) ?? epoch(host.lastSeen);
  const [stopped, down, lostAt] = [epoch(host.agentStoppedAt), epoch(host.goingDownSince), epoch(host.lostAt)];
  const lost = host.state === "LOST";
  const found: Moment[] = [];
  const add = (at: number | null, words: string, when: Moment["when"] = "was"): void => {
    if (at !== null) found.push({ at, words, when });
  };
  add(down, "it said that it shuts down");
  add(stopped, "its agent said that it is stopped; what ran there may run on");
  if (heard === null) found.push({ at: null, words: "it was not heard since this controller began", when: "was" });
  else add(heard, "it was heard for the last time");
  if (lost) {
    const decided = history.filter((each) => each.event?.kind === "lost").map((each) => epoch(each.time)).filter((at) => at !== null);
    add(decided.length ? Math.max(...decided) : null, "it was taken as lost: its lease was over, so jobs whose ranks have ended with it went on elsewhere");
  }
  add(now, heard === null ? "nothing yet" : `silent for ${span(now - heard)}`, "now");
  if (lost) found.push({ at: null, words: "once it is heard again: what still runs there goes on, or is stopped where its job went on without it", when: "comes" });
  else if (host.state === "SUSPECT") {
    add(lostAt, `it is taken as lost${lostAt === null || lostAt < now ? "" : `, in ${span(lostAt - now)}`}: its lease is over, and jobs whose ranks have ended with it go on elsewhere`, "comes");
    found.push({ at: null, words: "if it is heard before: all goes on as it was", when: "comes" });
  }
  return found.sort((a, b) => order(a) - order(b));
}

const order = ({ at, when }: Moment): number => at ?? (when === "was" ? 0 : Infinity);
