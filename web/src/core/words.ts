/** Times, counts and states in the words of the command line, so that both say the same. */

const STEPS: readonly (readonly [number, string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
];

/** `42s`, `3m`, `2h`, `5d`: one unit, for tables. Never negative: clocks differ. */
export function age(seconds: number): string {
  const spent = Math.max(0, seconds);
  for (const [size, unit] of STEPS) {
    if (spent >= size * (unit === "d" ? 2 : 1)) return `${Math.floor(spent / size)}${unit}`;
  }
  return `${Math.floor(spent)}s`;
}

/** `0.8s`, `42s`, `3m 12s`, `2h 5m`, `3d 4h`: two units, for sentences. */
export function span(seconds: number): string {
  const spent = Math.max(0, seconds);
  if (spent < 10) return `${fixed(spent, 1)}s`;
  const whole = Math.floor(spent);
  for (const [index, [size, unit]] of STEPS.entries()) {
    if (whole >= size) {
      const [below, belowUnit] = STEPS[index + 1] ?? [1, "s"];
      const rest = Math.floor((whole % size) / below);
      return rest ? `${Math.floor(whole / size)}${unit} ${rest}${belowUnit}` : `${Math.floor(whole / size)}${unit}`;
    }
  }
  return `${whole}s`;
}

/** As `span`, in milliseconds below a second. */
export function short(seconds: number): string {
  return seconds < 0.9995 ? `${whole(1000 * Math.max(0, seconds))}ms` : span(seconds);
}

/** Epoch seconds of an RFC 3339 time; null where there is none. */
export function epoch(time: string | null | undefined): number | null {
  const found = time ? Date.parse(time) / 1000 : Number.NaN;
  return Number.isNaN(found) ? null : found;
}

const two = (number: number): string => String(number).padStart(2, "0");

/** `2026-01-31 08:00:00`, in the reader's time zone or in UTC. */
export function moment(seconds: number, utc = false): string {
  const t = new Date(seconds * 1000);
  return utc
    ? t.toISOString().slice(0, 19).replace("T", " ")
    : `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ` +
        `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
}

/** The time of day, or day and minute when that was not today. */
export function clock(seconds: number, now: number, utc = false): string {
  const text = moment(seconds, utc);
  return text.slice(0, 10) === moment(now, utc).slice(0, 10) ? text.slice(11) : text.slice(5, 16);
}

/** `1 GPU`, `2 GPUs`. */
export function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** `0-2,4-7` for 0, 1, 2, 4, 5, 6, 7. */
export function ranges(numbers: Iterable<number>): string {
  const parts: [number, number][] = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else if (last?.[1] !== number) parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** `RUNNING` for `JOB_STATE_RUNNING`. */
export function stateName(state: string): string {
  const at = state.indexOf("_STATE_");
  return at < 0 ? state : state.slice(at + 7);
}

const MARKS: Record<string, string> = {
  QUEUED: "waits",
  PENDING: "waits",
  RUNNING: "runs",
  UPDATING: "runs",
  SUCCEEDED: "good",
  PARTIALLY_SUCCEEDED: "good",
  FAILED: "bad",
  EXPIRED: "bad",
  CANCELLING: "stopped",
  CANCELLED: "stopped",
  PAUSED: "stopped",
};

/** Which of five looks a job's state has: waits, runs, good, bad, stopped. */
export function look(state: string): string {
  return MARKS[stateName(state)] ?? "stopped";
}

const ENDED = new Set(["SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"]);

/** Whether a job in this state has ended for good. */
export function ended(state: string): boolean {
  return ENDED.has(stateName(state));
}

/** `64.0 GiB`. */
export function gib(bytes: number): string {
  return `${fixed(bytes / 2 ** 30, bytes < 10 * 2 ** 30 ? 1 : 0)} GiB`;
}

/** `93.1 %`; a dash where it is unknown. */
export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "–" : `${fixed(100 * share, 1)} %`;
}

/** A word for the shell: in quotes where it has to be. */
export function shellWord(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** Without them the same signs stand side by side: of some languages' letters, and of emoji. */
const JOINERS = /[\u200c\u200d]/g;
/** What the command line does not show as it is: all that is invisible, by its category or in every font. */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]/gu;

/** Text of others on one line: what would not be seen, or would reorder its surroundings, is shown as a box. */
export function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").replace(JOINERS, "").replace(INVISIBLE, "\u25a1");
}

/** JSON in lines, in which what `oneLine` would not show is escaped: it reads back as it was. */
export function jsonText(value: unknown): string {
  const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value, null, 2).replace(INVISIBLE, (found) => (found === "\n" ? found : found.replace(/[^]/g, escaped)));
}

/** A sentence of the controller apart from the command that it ends in; the second is empty where there is none. */
export function commandAtEnd(sentence: string): [string, string] {
  const at = sentence.lastIndexOf(": holdfast ");
  return at < 0 ? [sentence, ""] : [sentence.slice(0, at + 1), sentence.slice(at + 2)];
}

/** A number with so many digits of its fraction, what lies halfway to the even side, as the command line prints it. */
export function fixed(number: number, digits: number): string {
  const halfway = Math.abs(number * 2 ** (digits + 1)) % 2 === 1;
  const scale = 10 ** digits;
  return (halfway ? (2 * Math.round((number * scale) / 2)) / scale : number).toFixed(digits);
}

/** A number without its fraction, as `fixed`. */
export const whole = (number: number): string => fixed(number, 0);
