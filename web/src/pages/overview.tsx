import type { JSX } from "preact";
import { gpuLook, grouped, hostState, labelsOf } from "../core/hosts.ts";
import type { GpuLook } from "../core/hosts.ts";
import { lastWord, steps } from "../core/gang.ts";
import { hostPath, jobPath } from "../core/route.ts";
import type { Attention, Status } from "../core/types/cluster.ts";
import type { Host } from "../core/types/host.ts";
import type { JobRow } from "../core/types/job.ts";
import { age, commandAtEnd, count, epoch, oneLine, shellWord, span } from "../core/words.ts";
import { Ago, Command, Empty, Stale, State, Table, Text, Unready } from "../ui/bits.tsx";
import { useData, useNow, useTitle } from "../ui/hooks.ts";
import { setQuery, useRoute } from "../ui/router.ts";
import { Reservations, useReservations } from "./reserved.tsx";

export interface HostList {
  hosts: Host[];
  nextPageToken: string;
}

export interface JobList {
  jobs: JobRow[];
  nextPageToken: string;
}

const URGENT = new Set(["HOST_LOST", "HOST_SILENT", "HOST_REFUSED", "HOST_THROTTLED", "WITHHELD", "GPU_FAULT", "HANG", "CERTIFICATE"]);
/** Kinds whose messages end in a command of the controller's own; those of others may end in anything. */
const COMMANDED = new Set(["HOST_LOST", "HANG"]);
const list = (state: string): string => `/v1/jobs?${new URLSearchParams({ view: "ROW", newest: "true", pageSize: "50", filter: `state=${state}` })}`;

/** What needs a person, what runs, what waits and why, and every GPU. */
export function Overview(): JSX.Element {
  useTitle("Overview");
  const anything = (): boolean => true;
  const status = useData<Status>("/v1/status", anything);
  const running = useData<JobList>(list("RUNNING|PENDING|CANCELLING"), (changes) => changes.jobs.length > 0);
  const waiting = useData<JobList>(list("QUEUED"), (changes) => changes.jobs.length > 0);
  const hosts = useData<HostList>("/v1/hosts?pageSize=1000", anything);
  const reserved = useReservations();
  const now = useNow(5);
  if (!status.data) return <Unready title="Overview" error={status.error} again={status.again} />;
  const found = status.data;
  return (
    <div class="page overview">
      <h1 class="unseen">Overview</h1>
      <Stale of={status} />
      <Summary of={found} now={now} />
      {found.motd && (
        <section class="panel motd">
          <h2>Message of the day</h2>
          {found.motd.text.split("\n").map((line, index) => <p key={index}><Text of={line} /></p>)}
          <p class="soft">from <Text of={found.motd.by} />, <Ago at={found.motd.time} now={now} /> ago</p>
        </section>
      )}
      <section class="panel">
        <h2>{found.attention.length ? "Needs you" : "Nothing needs you"}</h2>
        {found.attention.length === 0 && <p class="soft">Every host answers, no job hangs, and no certificate is about to end.</p>}
        <ul class="attention">{found.attention.map((each, index) => <Needed key={index} of={each} now={now} />)}</ul>
        {found.attentionMore > 0 && <p class="soft">… and {found.attentionMore} more</p>}
      </section>
      <div class="columns">
        <JobsOf title="Running" loaded={running} state="RUNNING" none="Nothing runs." now={now} />
        <JobsOf title="Waiting" loaded={waiting} state="QUEUED" none="Nothing waits." now={now} />
      </div>
      <Reservations of={reserved} now={now} quiet />
      <Stale of={hosts} />
      {hosts.data && <Board hosts={hosts.data.hosts} more={hosts.data.nextPageToken !== ""} />}
    </div>
  );
}

const GPU_WORDS: readonly (readonly [string, string])[] = [
  ["used", "in use"], ["free", "free"], ["reserved", "reserved"], ["unavailable", "unavailable"], ["unhealthy", "unhealthy"], ["withheld", "withheld"],
];

function Summary({ of, now }: { of: Status; now: number }): JSX.Element {
  const total = (counts: Record<string, number>): number => Object.values(counts).reduce((sum, each) => sum + each, 0);
  const hosts = total(of.hosts);
  return (
    <dl class="summary panel">
      <div><dt>GPUs</dt><dd><strong>{total(of.gpus).toLocaleString("en")}</strong> {GPU_WORDS.filter(([key]) => of.gpus[key]).map(([key, word]) => `${of.gpus[key]} ${word}`).join(", ")}</dd></div>
      <div><dt>Hosts</dt><dd><strong>{hosts.toLocaleString("en")}</strong> {Object.entries(of.hosts).filter(([, number]) => number).map(([state, number]) => `${number} ${state.replaceAll("_", " ")}`).join(", ")}</dd></div>
      <div><dt>Jobs</dt><dd><strong>{(of.jobs["RUNNING"] ?? 0).toLocaleString("en")}</strong> running{["PENDING", "QUEUED", "PAUSED", "CANCELLING"].filter((state) => of.jobs[state]).map((state) => `, ${of.jobs[state]} ${state.toLowerCase()}`)}</dd></div>
      <div><dt>Controller</dt><dd>{of.version}, up {span(now - (epoch(of.started) ?? now))}</dd></div>
    </dl>
  );
}

/** One thing that needs attention, with the command that answers it to copy; `here` on the page that it is about. */
export function Needed({ of, now, here = false }: { of: Attention; now: number; here?: boolean }): JSX.Element {
  const at = of.subject.indexOf("/");
  const [kind, name] = at < 0 ? ["", of.subject] : [of.subject.slice(0, at), of.subject.slice(at + 1)];
  const path = kind === "job" ? jobPath(name, of.kind === "HANG" ? "?tab=hangs" : "") : kind === "host" ? hostPath(name) : "";
  const [words, said] = COMMANDED.has(of.kind) ? commandAtEnd(of.message) : [of.message, ""];
  const command = of.kind === "HOST_CORDONED" && name ? `holdfast host uncordon ${shellWord(name)}` : said;
  return (
    <li class={`${URGENT.has(of.kind) ? "urgent" : ""} ${here ? "here" : ""}`}>
      {!here && <span class="subject">{path ? <a href={path}>{kind} <Text of={name} /></a> : <Text of={name} />}</span>}
      <span class="soft since">{of.since ? age(now - (epoch(of.since) ?? now)) : ""}</span>
      <span><Text of={words} />{command && <Command line={command} />}</span>
    </li>
  );
}

function JobsOf(props: { title: string; loaded: ReturnType<typeof useData<JobList>>; state: string; none: string; now: number }): JSX.Element {
  const { data } = props.loaded;
  const waiting = props.state === "QUEUED";
  return (
    <section class="panel">
      <h2>{props.title} {data && data.jobs.length > 0 && <span class="soft">{data.jobs.length}{data.nextPageToken ? "+" : ""}</span>}</h2>
      <Stale of={props.loaded} />
      {data && !data.jobs.length && <p class="soft">{props.none}</p>}
      {data && data.jobs.length > 0 && (
        <Table
          caption={props.title} rows={data.jobs} id={(job) => job.id}
          columns={[
            { title: "Job", whole: data.jobs.every((job) => (job.displayName || job.id).length <= 24), cell: (job) => <><State of={job.state} /> <a href={jobPath(job.id)}><Text of={job.displayName || job.id} /></a></> },
            ...(waiting ? [] : [{ title: "Step", right: true, cell: (job: JobRow) => steps(job) || "–" }]),
            { title: "GPUs", right: true, cell: (job) => job.gpuCount ?? "–" },
            { title: waiting ? "Since" : "Ran", right: true, cell: (job) => <Ago at={waiting ? job.createTime : job.startTime} now={props.now} /> },
            { title: waiting ? "Why" : "Last word", wide: true, cell: (job) => <Text of={lastWord(job) || job.health} /> },
          ]}
        />
      )}
      {data?.nextPageToken && <a href={`/jobs?state=${props.state}`}>All of them</a>}
    </section>
  );
}

const LOOKS: Record<GpuLook, string> = { used: "in use", free: "free", reserved: "reserved", faulty: "faulty", unavailable: "unavailable" };

/** Every GPU as a cell, a host a block; a cell in use leads to its job. */
function Board({ hosts, more }: { hosts: Host[]; more: boolean }): JSX.Element {
  const { query } = useRoute();
  const label = query.get("by") ?? "";
  const labels = labelsOf(hosts);
  if (!hosts.length) return <section class="panel"><h2>Hosts</h2><Empty command="holdfast host token create">No hosts yet. Make a token for one:</Empty></section>;
  return (
    <section class="panel board">
      <h2>Hosts and GPUs</h2>
      {labels.length > 0 && (
        <label class="by">Group by <select value={label} onChange={(event) => setQuery({ by: event.currentTarget.value })}>
          <option value="">nothing</option>{labels.map((each) => <option key={each} value={each}>{each}</option>)}
        </select></label>
      )}
      {grouped(hosts, label).map(([group, members]) => (
        <div key={group} class="group">
          {label && <h3>{label} <Text of={group || "none"} /></h3>}
          <ul class="hosts">
            {members.map((host) => (
              <li key={host.name}>
                <a href={hostPath(host.name)} class="hostname"><Text of={host.name} /></a>
                <span class="gpus">
                  {host.gpus.map((gpu) => {
                    const kind = gpuLook(gpu);
                    const words = `GPU ${gpu.index} of ${host.name}: ${LOOKS[kind]}${gpu.jobId ? `, ${gpu.jobId}` : ""}${gpu.problem ? `, ${oneLine(gpu.problem)}` : ""}`;
                    return gpu.jobId
                      ? <a key={gpu.uuid} href={jobPath(gpu.jobId)} class={`gpu u-${kind}`} title={words} aria-label={words} />
                      : <span key={gpu.uuid} class={`gpu u-${kind}`} title={words} role="img" aria-label={words} />;
                  })}
                  {!host.gpus.length && <small class="soft">{host.gpuProblem ? <Text of={host.gpuProblem} /> : "no GPUs"}</small>}
                </span>
                {hostState(host) !== "ready" && <small class="bad">{hostState(host)}</small>}
              </li>
            ))}
          </ul>
        </div>
      ))}
      <ul class="legend">{(Object.keys(LOOKS) as GpuLook[]).map((kind) => <li key={kind}><i class={`gpu u-${kind}`} />{LOOKS[kind]}</li>)}</ul>
      {more && <p class="soft">The first {count(hosts.length, "host")}. <a href="/hosts">All hosts</a></p>}
    </section>
  );
}
