import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { extent, gang, lastWord, machines, ran, spares, steps } from "../core/gang.ts";
import { hours, LEVELS, losses } from "../core/ledger.ts";
import { jobPath, withQuery } from "../core/route.ts";
import type { Goodput } from "../core/types/goodput.ts";
import type { Job, Members } from "../core/types/job.ts";
import { count, ended, epoch, moment, percent, span, whole } from "../core/words.ts";
import { Actions } from "../job/actions.tsx";
import { Events } from "../job/events.tsx";
import { Logs } from "../job/logs.tsx";
import { Shell } from "../job/shell.tsx";
import { Exits, Hangs, Ranks, Recoveries, Spec } from "../job/tables.tsx";
import { Timeline } from "../job/timeline.tsx";
import { Command, GoodputBar, Problem, State, Text, Unready } from "../ui/bits.tsx";
import { useData, useNow, useTitle } from "../ui/hooks.ts";
import type { Loaded } from "../ui/hooks.ts";

const TABS = ["timeline", "ranks", "logs", "exits", "hangs", "recoveries", "events", "spec", "shell"] as const;
type Tab = (typeof TABS)[number];
/** Generations whose exits are read at first: a rank that was relaunched hundreds of times has as many. */
const EXITS_OF = 20;

/** One job: in the first screen whether it is healthy, what happened, what was done and what to do. */
export function JobPage({ id, query }: { id: string; query: URLSearchParams }): JSX.Element {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const mine = (changes: { jobs: string[] }): boolean => changes.jobs.includes(id);
  const all = query.get("exits") === "all";
  const { data: job, error, again } = useData<Job>(`${path}?foldExits=true&withoutWorkers=true${all ? "" : `&exitsOfNewest=${EXITS_OF}`}`, mine);
  const { data: goodput } = useData<Goodput>(`${path}/goodput`, mine);
  // Of thousands of ranks they take a while, and so are asked for beside the job, by their tab alone.
  const members = useData<Members>(query.get("tab") === "ranks" ? `${path}?foldExits=true&exitsOfNewest=1&readMask=workers` : null, mine);
  const shell = useRef(false);
  useTitle(job?.displayName || id);
  const asked = query.get("tab") as Tab;
  const tab = TABS.includes(asked) ? asked : "timeline";
  shell.current ||= tab === "shell";
  if (!job && (error || tab !== "logs")) return <Unready title={id} error={error} again={again} />;
  return (
    <div class="page job">
      {error && error.status !== 0 && <Problem error={error} again={again} />}
      {job ? <Head job={job} goodput={goodput} changed={again} /> : <h1><Text of={id} /></h1>}
      <nav class="tabs" aria-label="About this job">
        {TABS.map((each) => (
          <a key={each} href={jobPath(id, withQuery(new URLSearchParams(), { tab: each === "timeline" ? "" : each }))} aria-current={each === tab ? "page" : undefined}>
            {each[0]?.toUpperCase()}{each.slice(1)}
            {job && <Number of={job} tab={each} />}
          </a>
        ))}
      </nav>
      <div data-tab={tab} class="tab">
        {/* A log has nothing to wait for. */}
        {tab === "logs" && <Logs id={id} job={job} query={query} />}
        {job && tab !== "logs" && <OfJob job={job} tab={tab} goodput={goodput} members={members} query={query} all={all} />}
        {/* It goes on behind the other tabs. */}
        {job && shell.current && <div hidden={tab !== "shell"}><Shell job={job} rank={(tab === "shell" && query.get("rank")) || "0"} /></div>}
      </div>
    </div>
  );
}

interface Shown {
  job: Job;
  tab: Tab;
  goodput: Goodput | null;
  members: Loaded<Members>;
  query: URLSearchParams;
  /** Exits of all generations. */
  all: boolean;
}

function OfJob({ job, tab, goodput, members, query, all }: Shown): JSX.Element | null {
  switch (tab) {
    case "timeline": return <Timeline job={job} goodput={goodput} query={query} />;
    case "ranks": return <Ranks job={job} members={members} />;
    case "exits": return <Exits job={job} all={all || job.generation <= EXITS_OF} />;
    case "hangs": return <Hangs job={job} />;
    case "recoveries": return <Recoveries job={job} />;
    case "events": return <Events id={job.id} live={!ended(job.state)} />;
    case "spec": return <Spec job={job} />;
    default: return null;
  }
}

function Number({ of, tab }: { of: Job; tab: Tab }): JSX.Element | null {
  const number = tab === "hangs" ? of.hangs.length : tab === "recoveries" ? of.recoveries.length : 0;
  return number ? <span class="number">{number}</span> : null;
}

function Head({ job, goodput, changed }: { job: Job; goodput: Goodput | null; changed: () => void }): JSX.Element {
  const { gpus, ranks } = gang(job.jobSpec);
  const hosts = job.hostCount ?? 0;
  const asked = machines(job.jobSpec);
  const where = [gpus ? count(gpus, "GPU") : count(ranks, "rank"), asked && `(${asked})`, hosts ? `on ${count(hosts, "host")}` : ""];
  return (
    <header class="head panel">
      <div class="title">
        <State of={job.state} />
        {job.summary?.condition === "NEEDS_YOU" && <strong class="needs">needs you</strong>}
        <h1><Text of={job.displayName || job.id} /></h1>
        <Actions job={job} changed={changed} />
      </div>
      <p class="soft about">
        <Text of={job.id} /> · <a href={`/jobs?owner=${encodeURIComponent(job.owner)}`}><Text of={job.owner} /></a>
        {" · "}<a href={`/jobs?project=${encodeURIComponent(job.project)}`}><Text of={job.project} /></a>
        {" · "}<Text of={where.filter(Boolean).join(" ")} />
        {job.array && <>{" · "}<a href={`/jobs?array=${encodeURIComponent(job.array.id)}`}>element {job.array.index} of an array of {extent(job.array)}</a></>}
      </p>
      <Said job={job} silent={!!goodput?.silentSince} />
      {goodput && goodput.lines.length > 0 && <Ledger of={goodput} />}
    </header>
  );
}

const TO_DO = "What do I do?";
const HEALTHY = "Is it healthy?";
/** The answer in a word, ahead of the controller's; of a job that has ended its state is the answer. */
const IN_A_WORD: Record<string, string> = { WORKS: "Yes.", WAITS: "It waits.", RECOVERS: "Not now, and it is being mended.", NEEDS_YOU: "No." };

/** The controller's four sentences; of an older one, the facts that the command line prints. */
function Said({ job, silent }: { job: Job; silent: boolean }): JSX.Element {
  const now = useNow();
  const said = job.summary;
  const command = said?.command ?? "";
  const advice = command && said?.advice.endsWith(command) ? said.advice.slice(0, -command.length).trimEnd() : said?.advice;
  const rows: [string, string][] = said
    ? [
        [HEALTHY, said.health],
        ["What happened?", said.happened],
        ["What was done?", said.done],
        [TO_DO, advice || "nothing"],
      ]
    : facts(job, now);
  const done = said ? stepWords(job) : "";
  return (
    <>
      <dl class={`said ${said?.condition === "NEEDS_YOU" ? "urgent" : ""}`}>
        {rows.filter(([, text]) => text).map(([name, text]) => (
          <div key={name}><dt>{name}</dt><dd>{name === HEALTHY ? <Health of={text} word={silent ? "Not known." : IN_A_WORD[said?.condition ?? ""] ?? ""} /> : <Text of={text} />}{name === TO_DO && command && <Command line={command} />}</dd></div>
        ))}
        {done && <div><dt>Step</dt><dd>{done}</dd></div>}
        {spares(job) && <div><dt>Spares</dt><dd><Text of={spares(job)} /></dd></div>}
        {job.expectedEnd && <div><dt>Ends</dt><dd>{job.expectedEnd.words}</dd></div>}
      </dl>
    </>
  );
}

/** A word, what matters most, and what else is known on a line of its own. */
function Health({ of, word }: { of: string; word: string }): JSX.Element {
  const end = of.length > 120 ? of.indexOf("; ") : -1;
  return (
    <>
      {word && <strong>{word} </strong>}<Text of={end < 0 ? of : of.slice(0, end)} />
      {end >= 0 && <div class="soft"><Text of={of.slice(end + 2)} /></div>}
    </>
  );
}

function stepWords(job: Job): string {
  const done = steps(job);
  const part = job.step !== null && job.stepTotal ? (100 * job.step) / job.stepTotal : 0;
  const share = part >= 1 ? ` (${whole(part)} %)` : "";
  return done && `${done}${share}${job.savedStep === null ? "" : `, saved at ${whole(job.savedStep)}`}`;
}

function facts(job: Job, now: number): [string, string][] {
  const time = ran(job, now);
  const held = epoch(job.heldUntil);
  return [
    ["Waits", job.waitReason],
    ["Health", job.health],
    ["Error", job.error ? [job.error.message, job.error.raised].filter(Boolean).join(" ") : ""],
    ["Final", job.error?.whyFinal ?? ""],
    ["Held", held !== null && held > now ? `until ${moment(held)}: no hang is acted on` : ""],
    ["Step", stepWords(job)],
    ["Launch", job.generation ? `attempt ${job.attempt}, generation ${job.generation}${time === null ? "" : `, ran ${span(time)}`}` : "not yet"],
    ["Before", job.error || job.waitReason ? "" : lastWord({ ...job, recoveryCount: job.recoveries.length, hangCount: job.hangs.length })],
  ];
}

function Ledger({ of }: { of: Goodput }): JSX.Element {
  const lost = losses(of).map(({ cause, share }) => `${cause} ${percent(share)}`);
  const known = of.level === "D" ? null : of.goodput;
  return (
    <div class="ledger">
      <p title={`Level ${of.level}: ${LEVELS[of.level] ?? "of a newer controller"}`}>
        <strong>{known === null ? "Goodput unknown" : `Goodput ${percent(known)}`}</strong>
        {lost.length > 0 && <span class="soft"> lost most to {lost.join(", ")}</span>}
        {of.unusedMs > 0 && <span class="soft"> {hours(of.unusedMs)} of {hours(of.totalMs)} GPU hours on GPUs that its ranks left idle</span>}
        {(of.slowedMs ?? 0) > 0 && <span class="soft"> {hours(of.slowedMs ?? 0)} of {hours(of.totalMs)} GPU hours lost as it was slower than at its best</span>}
      </p>
      <GoodputBar of={of} />
    </div>
  );
}

