import type { JSX } from "preact";
import { hostLook, hostState, remark } from "../core/hosts.ts";
import { lastWord } from "../core/gang.ts";
import { jobPath } from "../core/route.ts";
import type { Status } from "../core/types/cluster.ts";
import type { Host, HostEvent } from "../core/types/host.ts";
import { epoch, gib, moment, shellWord } from "../core/words.ts";
import { Acts } from "../ui/acts.tsx";
import type { Act } from "../ui/acts.tsx";
import { Ago, Loading, Stale, State, Table, Text, Unready } from "../ui/bits.tsx";
import { useData, useNow, useTitle } from "../ui/hooks.ts";
import { Measured } from "./measured.tsx";
import { Health } from "./health.tsx";
import { Silent } from "./silent_host.tsx";
import { Needed } from "./overview.tsx";
import type { JobList } from "./overview.tsx";
import { useReservations } from "./reserved.tsx";
import { ofHost } from "../core/reserved.ts";

const REASON = { key: "reason", title: "Why, for others to read" };
const reason = (given: Record<string, string>): string => (given["reason"] ? ` --reason ${shellWord(given["reason"])}` : "");
const CORDON: Act = {
  verb: "cordon",
  title: "Cordon",
  what: "It takes no new work. What runs there continues.",
  command: (name, given) => `holdfast host cordon ${name}${reason(given)}`,
  fields: [REASON],
};
const UNCORDON: Act = {
  verb: "uncordon",
  title: "Uncordon",
  what: "It takes work again; a drain ends. GPUs that are out of service for a fault stay so.",
  command: (name) => `holdfast host uncordon ${name}`,
};
const DRAIN: Act = {
  verb: "drain",
  title: "Drain",
  what: "It takes no new work, and what runs there is waited for. With a deadline, what is still there then continues elsewhere.",
  command: (name, given) => `holdfast host drain ${name}${given["deadline"] ? ` --deadline ${shellWord(given["deadline"])}` : ""}${reason(given)}`,
  fields: [{ key: "deadline", title: "Deadline", hint: "30m; without one its work is waited for" }, REASON],
};
const CHECK: Act = {
  verb: "check",
  title: "Check",
  what: "A short job measures it as soon as it is idle, and gives way to every other job.",
  command: (name) => `holdfast host check ${name}`,
};

function possible(host: Host): Act[] {
  if (host.draining) return [UNCORDON];
  return host.cordoned ? [UNCORDON, DRAIN] : [CORDON, DRAIN, CHECK];
}

/** One host: its state, what is wrong with it, its GPUs, jobs and history. */
export function HostPage({ name }: { name: string }): JSX.Element {
  useTitle(name);
  const path = `/v1/hosts/${encodeURIComponent(name)}`;
  const mine = (changes: { hosts: string[]; jobs: string[] }): boolean => changes.hosts.includes(name) || changes.jobs.length > 0;
  const found = useData<Host>(path, mine);
  const { data: host, error, again } = found;
  const past = useData<{ events: HostEvent[] }>(`${path}/events?newest=true&pageSize=100`, mine);
  const history = past.data;
  const { data: status } = useData<Status>("/v1/status", mine);
  const reserved = useReservations();
  const now = useNow(5);
  if (!host) return <Unready title={name} error={error} again={again} />;
  const needs = status?.attention.filter((each) => each.subject === `host/${name}`) ?? [];
  const facts: [string, JSX.Element | string][] = [
    ["Remark", remark({ ...host, gpus: [], failedChecks: [] }, now)],
    ["Seen", host.lastSeen ? <><Ago at={host.lastSeen} now={now} /> ago</> : "never"],
    ["Address", host.address],
    ["Agent", host.agentVersion],
    ["Cores", `${host.cpuCount}, ${host.cpuReserved} reserved by jobs`],
    ["Memory", `${gib(host.memoryBytes)}, ${gib(host.memoryReservedBytes)} reserved by jobs`],
    ["Workers", `${host.workers} of at most ${host.maxWorkers}`],
    ["Labels", Object.entries(host.labels).map(([key, value]) => `${key}=${value}`).join(", ")],
    ["Machine type", (host.machineTypes ?? []).join(", ")],
    ["Reserved", ofHost(reserved.data?.reservations ?? [], name, now).join("; ")],
    ["Cordoned", host.cordoned ? `by ${host.cordonedBy || "the controller"}${host.cordonedSince ? ` since ${moment(epoch(host.cordonedSince) ?? 0)}` : ""}` : ""],
  ];
  return (
    <div class="page">
      <Stale of={found} />
      <header class="head panel">
        <div class="title">
          <span class={`dot d-${hostLook(host)}`}>{hostState(host)}</span><h1><Text of={host.name} /></h1>
          <Acts acts={possible(host)} of="host" name={host.name} title={host.name} path={path} changed={again} />
        </div>
        {needs.length > 0 && <ul class="attention">{needs.map((each, index) => <Needed key={index} of={each} now={now} here />)}</ul>}
        <dl class="said">
          {facts.filter(([, value]) => value).map(([title, value]) => <div key={title}><dt>{title}</dt><dd>{typeof value === "string" ? <Text of={value} /> : value}</dd></div>)}
        </dl>
      </header>
      {host.state !== "READY" && <Silent host={host} history={history?.events ?? []} now={now} />}
      <Health host={host} history={history?.events ?? []} now={now} />
      {host.measurements && <Measured of={host.measurements} now={now} />}
      {host.gpus.length > 0 && (
        <section class="panel">
          <h2>GPUs</h2>
          <Table
            caption="GPUs" rows={host.gpus} id={(gpu) => gpu.uuid}
            columns={[
              { title: "Index", right: true, cell: (gpu) => gpu.index },
              { title: "Model", cell: (gpu) => <Text of={gpu.model} /> },
              { title: "Memory", right: true, cell: (gpu) => gib(gpu.memoryBytes) },
              { title: "Job", cell: (gpu) => (gpu.jobId ? <a href={jobPath(gpu.jobId)}><Text of={gpu.jobId} /></a> : gpu.state.toLowerCase()) },
              { title: "Health", wide: true, cell: (gpu) => <span class={gpu.problem ? "bad" : ""}><Text of={gpu.problem || (hostLook(host) === "bad" ? "not known while nothing is heard from the host" : "good")} /></span> },
              { title: "UUID", cell: (gpu) => <Text of={gpu.uuid} /> },
            ]}
          />
        </section>
      )}
      {host.jobIds.length > 0 && <Jobs of={host} mine={mine} now={now} />}
      <section class="panel">
        <h2>History</h2>
        {!error && <Stale of={past} />}
        {!history ? !past.error && <Loading /> : !history.events.length ? <p class="soft">Nothing is kept.</p> : (
          <Table
            caption="History of the host" rows={[...history.events].sort((a, b) => b.cursor - a.cursor)} id={(event) => event.cursor}
            columns={[
              { title: "Time", cell: (event) => (event.time ? moment(epoch(event.time) ?? 0) : "–") },
              { title: "What happened", wide: true, cell: (event) => <Text of={event.message} /> },
            ]}
          />
        )}
      </section>
    </div>
  );
}

/** Jobs that have workers here, each in the words of its own page. */
function Jobs({ of, mine, now }: { of: Host; mine: (changes: { hosts: string[]; jobs: string[] }) => boolean; now: number }): JSX.Element {
  const asked = new URLSearchParams({ view: "ROW", newest: "true", pageSize: "200", search: of.name, filter: "active=true" });
  const { data } = useData<JobList>(`/v1/jobs?${asked}`, mine);
  const known = new Map(data?.jobs.map((job) => [job.id, job]));
  return (
    <section class="panel">
      <h2>Jobs</h2>
      <Table
        caption="Jobs on this host" rows={of.jobIds.map((id) => ({ id, job: known.get(id) }))} id={(row) => row.id}
        columns={[
          { title: "Job", cell: ({ id, job }) => <>{job && <><State of={job.state} /> </>}<a href={jobPath(id)}><Text of={job?.displayName || id} /></a></> },
          { title: "Ran", right: true, cell: ({ job }) => (job ? <Ago at={job.startTime} now={now} /> : "–") },
          { title: "Last word", wide: true, cell: ({ job }) => <Text of={job ? lastWord(job) || job.health : ""} /> },
        ]}
      />
    </section>
  );
}
