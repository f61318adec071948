import type { JSX } from "preact";
import { due, inZone, overlap } from "../core/plans.ts";
import type { JobFile, Schedule, Template } from "../core/plans.ts";
import { jobPath } from "../core/route.ts";
import type { Changes } from "../core/types/cluster.ts";
import { epoch, jsonText, moment, shellWord, span } from "../core/words.ts";
import { Acts } from "../ui/acts.tsx";
import type { Act } from "../ui/acts.tsx";
import { Command, Empty, Loading, Problem, Stale, Table, Text } from "../ui/bits.tsx";
import { useData, useTitle } from "../ui/hooks.ts";

interface Page {
  nextPageToken: string;
}
type Schedules = Page & { schedules: Schedule[] };
type Templates = Page & { templates: Template[] };

/** A name in a project, as the command line takes it. */
function named(project: string, name: string): string {
  return `${shellWord(name)}${project === "default" ? "" : ` --project ${shellWord(project)}`}`;
}

function acts(of: Schedule): Act[] {
  const command = (verb: string) => (): string => `holdfast schedule ${verb} ${named(of.project, of.name)}`;
  const pause = { verb: "pause", title: "Pause", what: "Nothing is submitted until it is resumed. Its jobs go on.", command: command("pause") };
  const resume = { verb: "resume", title: "Resume", what: "It goes on with the next run. What was due meanwhile is not made up.", command: command("resume") };
  const remove: Act = { verb: "", method: "DELETE", title: "Remove", what: "It is gone for good. Its jobs go on.", command: command("remove"), final: true };
  return [of.pausedBy ? resume : pause, remove];
}

const link = (kind: string, project: string, name: string): string => `/schedules?${new URLSearchParams({ [kind]: name, project })}`;
const plans = (changes: Changes): boolean => changes.plans === true;

/** What is submitted at times of day, and the job files that the controller keeps. */
export function Schedules({ query }: { query: URLSearchParams }): JSX.Element {
  const [schedule, template, project] = [query.get("schedule"), query.get("template"), query.get("project") ?? ""];
  if (schedule) return <OneSchedule key={`${project}/${schedule}`} project={project} name={schedule} />;
  if (template) return <OneTemplate key={`${project}/${template}`} project={project} name={template} />;
  return <All />;
}

function All(): JSX.Element {
  useTitle("Schedules");
  const schedules = useData<Schedules>("/v1/schedules?pageSize=1000", plans);
  const templates = useData<Templates>("/v1/templates?pageSize=1000", plans);
  return (
    <div class="page">
      <h1>Schedules</h1>
      <section class="panel">
        <h2 class="unseen">All schedules</h2>
        <Stale of={schedules} />
        {!schedules.data && !schedules.error && <Loading />}
        {schedules.data && !schedules.data.schedules.length && <Empty command="holdfast schedule create nightly train.yaml --cron '30 2 * * MON-FRI'">No schedules yet. Make one:</Empty>}
        {schedules.data && schedules.data.schedules.length > 0 && (
          <Table
            caption="Schedules" rows={schedules.data.schedules} id={(each) => `${each.project}/${each.name}`}
            columns={[
              { title: "Name", cell: (each) => <a href={link("schedule", each.project, each.name)}><Text of={each.name} /></a> },
              { title: "Project", cell: (each) => <Text of={each.project} /> },
              { title: "Owner", cell: (each) => <Text of={each.owner} /> },
              { title: "Cron", whole: true, cell: (each) => <code>{each.cron}</code> },
              { title: "Next run", cell: (each) => <span class={each.pausedBy ? "bad" : ""}><Text of={due(each)} /></span> },
              { title: "Runs", right: true, cell: (each) => each.runs },
              { title: "Last", wide: true, cell: (each) => <Last of={each} /> },
            ]}
          />
        )}
        {schedules.data?.nextPageToken && <p class="soft">There are more than are shown: holdfast schedule list</p>}
      </section>
      <section class="panel">
        <h2>Templates</h2>
        <Stale of={templates} />
        {templates.data && !templates.data.templates.length && <Empty command="holdfast template create train train.yaml">No templates yet. Keep a job file:</Empty>}
        {templates.data && templates.data.templates.length > 0 && (
          <Table
            caption="Templates" rows={templates.data.templates} id={(each) => `${each.project}/${each.name}`}
            columns={[
              { title: "Name", wide: true, cell: (each) => <a href={link("template", each.project, each.name)}><Text of={`${each.name}@${each.version}`} /></a> },
              { title: "Project", cell: (each) => <Text of={each.project} /> },
              { title: "Owner", cell: (each) => <Text of={each.owner} /> },
              { title: "Created", whole: true, cell: (each) => moment(epoch(each.updateTime) ?? 0) },
              { title: "By", cell: (each) => <Text of={each.updatedBy} /> },
            ]}
          />
        )}
        {templates.data?.nextPageToken && <p class="soft">There are more than are shown: holdfast template list</p>}
      </section>
    </div>
  );
}

function Last({ of }: { of: Schedule }): JSX.Element {
  if (of.leftOut) return <span class="bad">left out: <Text of={of.leftOut} /></span>;
  const id = of.jobIds.at(-1);
  // An array has no page of its own: its elements are found by the list.
  return id ? <a href={`/jobs?q=${encodeURIComponent(id)}`}><Text of={id} /></a> : <>–</>;
}

function OneSchedule({ project, name }: { project: string; name: string }): JSX.Element {
  useTitle(name);
  const loaded = useData<Schedules>(`/v1/schedules?${new URLSearchParams({ project, name })}`, plans);
  const { data, error, again } = loaded;
  const found = data?.schedules[0];
  if (!found) return <Nothing kind="schedule" name={name} known={data !== null} error={error} again={again} />;
  const last = epoch(found.lastRun);
  const facts: [string, JSX.Element | string][] = [
    ["Next run", due(found)],
    ["Cron", `${found.cron} in ${found.timeZone}`],
    ["While an earlier job goes on", `a run ${overlap(found)}`],
    ["A run that is late", found.startingDeadline === null ? "the newest is made up, however late" : `is left out after ${span(found.startingDeadline)}`],
    ["Last run", last === null ? "none yet" : `was due ${inZone(last, found.timeZone)}`],
    ["Left out", found.leftOut],
    ["Runs", `${found.runs}`],
    ["Owner", found.owner],
    ["Project", found.project],
  ];
  return (
    <div class="page">
      <Stale of={loaded} />
      <header class="head panel">
        <div class="title">
          <h1><Text of={found.name} /></h1>
          <Acts acts={acts(found)} of="schedule" name={found.name} title={found.name} path={`/v1/schedules/${encodeURIComponent(found.project)}/${encodeURIComponent(found.name)}`} changed={again} />
        </div>
        <dl class="said">{facts.filter(([, value]) => value).map(([title, value]) => <div key={title}><dt>{title}</dt><dd>{typeof value === "string" ? <Text of={value} /> : value}</dd></div>)}</dl>
      </header>
      <section class="panel">
        <h2>Last jobs</h2>
        {!found.jobIds.length ? <Empty>No run has become a job yet.</Empty> : (
          <Table
            caption="Last jobs" rows={[...found.jobIds].reverse()} id={(id) => id}
            columns={[{ title: "Job", wide: true, cell: (id) => <><a href={jobPath(id)}><Text of={id} /></a> <a class="soft" href={`/jobs?q=${encodeURIComponent(id)}`}>in the list</a></> }]}
          />
        )}
      </section>
      <File of={found.job} />
    </div>
  );
}

function OneTemplate({ project, name }: { project: string; name: string }): JSX.Element {
  useTitle(name);
  const loaded = useData<Templates>(`/v1/templates?${new URLSearchParams({ project, name })}`, plans);
  const { data, error, again } = loaded;
  const versions = [...(data?.templates ?? [])].reverse();
  const newest = versions[0];
  if (!newest) return <Nothing kind="template" name={name} known={data !== null} error={error} again={again} />;
  return (
    <div class="page">
      <Stale of={loaded} />
      <header class="head panel">
        <div class="title"><h1><Text of={newest.name} /></h1></div>
        <dl class="said">
          <div><dt>Owner</dt><dd><Text of={newest.owner} /></dd></div>
          <div><dt>Project</dt><dd><Text of={newest.project} /></dd></div>
        </dl>
        <p class="soft">A job of it, from a terminal:</p>
        <Command line={`holdfast template run ${named(newest.project, newest.name)}`} />
      </header>
      {versions.map((each) => (
        <details key={each.version} class="panel" open={each === newest}>
          <summary>Version {each.version}, {moment(epoch(each.updateTime) ?? 0)}, by <Text of={each.updatedBy} /></summary>
          <File of={each.job} />
        </details>
      ))}
    </div>
  );
}

function Nothing(props: { kind: string; name: string; known: boolean; error: Parameters<typeof Problem>[0]["error"] | null; again: () => void }): JSX.Element {
  return (
    <div class="page">
      <h1><Text of={props.name} /></h1>
      {props.error ? <Problem error={props.error} again={props.again} /> : props.known ? <Empty command={`holdfast ${props.kind} list`}>There is no such {props.kind}, or none that you may see.</Empty> : <Loading />}
    </div>
  );
}

function File({ of }: { of: JobFile | null }): JSX.Element | null {
  return of && <pre class="panel details spec" tabIndex={0} aria-label="The job file">{jsonText(of)}</pre>;
}
