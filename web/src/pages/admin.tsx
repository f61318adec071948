import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError, send } from "../core/api.ts";
import type { Me, Status } from "../core/types/cluster.ts";
import { count, epoch, fixed, moment, span } from "../core/words.ts";
import { Ago, Command, Empty, Loading, Problem, Table, Text, Used } from "../ui/bits.tsx";
import { once, useData, useNow, useTitle } from "../ui/hooks.ts";
import { setQuery } from "../ui/router.ts";
import { Controllers } from "./controllers.tsx";
import { Quotas } from "./reserved.tsx";
import { signOut } from "../ui/frame.tsx";

interface Session {
  id: string;
  user: string;
  begin: string;
  lastUse: string;
  end: string;
  address: string;
  agent: string;
  current: boolean;
}

interface User {
  name: string;
  grants: { project: string; role: string }[];
  configuredAdmin: boolean;
  accounts: string[];
}

/** Of `user/NAME`, `project/NAME` or `job/ID`. */
interface Stored {
  subject: string;
  jobs: number;
  bytes: number;
  limitBytes: number;
}

/** Of a project; a limit is null where it has none. */
interface Share {
  project: string;
  weight: number | null;
  share: number;
  usedGpuHours: number;
  gpus: number;
  factor: number;
  waiting: number;
  running: number;
  gpuQuota: number | null;
  runningQuota: number | null;
  waitingQuota: number | null;
}

interface AuditEntry {
  time: string;
  who: string;
  peer: string;
  call: string;
  target: string;
  outcome: string;
  message: string;
}

/** Who one is and where one is signed in; for admins users and the audit trail. */
export function Admin({ query }: { query: URLSearchParams }): JSX.Element {
  useTitle("Admin");
  const me = useData<Me>("/v1/me", once);
  return (
    <div class="page">
      <h1>Admin</h1>
      <section class="panel">
        <h2>You</h2>
        {me.error && <Problem error={me.error} again={me.again} />}
        {me.data && (
          <>
            <p><Text of={me.data.user.name} /> on <Text of={me.data.cluster} />: {rights(me.data.user)}</p>
            {me.data.certificateEnd && <p class="soft">This session ends at {moment(epoch(me.data.certificateEnd) ?? 0)} at the latest.</p>}
            <button type="button" onClick={() => void signOut()}>Sign out here</button>
          </>
        )}
      </section>
      <Sessions query={query} />
      <Users />
      <Shares />
      <Quotas />
      <Controllers />
      <Controller certificateEnd={me.data?.certificateEnd ?? null} />
      <Disk />
      <section class="panel">
        <h2>Letting people and machines in</h2>
        <p>Both print a secret once, which is worth more than a browser's session: they are for a terminal.</p>
        <Command line="holdfast user token NAME" />
        <Command line="holdfast host token create" />
      </section>
      <Audit query={query} />
    </div>
  );
}

function rights(user: User): string {
  const held = user.grants.map(({ project, role }) => `${role.toLowerCase()} of ${project === "*" || !project ? "all projects" : project}`);
  if (user.configuredAdmin) held.unshift("admin by the controller's configuration");
  return held.join(", ") || "no rights";
}

function Sessions({ query }: { query: URLSearchParams }): JSX.Element {
  const all = query.get("sessions") === "all";
  const { data, error, again } = useData<{ sessions: Session[] }>(all ? "/v1/sessions?all=true" : "/v1/sessions", once);
  const now = useNow(30);
  const [problem, setProblem] = useState("");
  const end = ({ id, user }: Session): void => {
    setProblem("");
    send(`/v1/sessions/${encodeURIComponent(id)}?${new URLSearchParams(all ? { user } : {})}`, {}, "DELETE").then(again, (reason: unknown) => setProblem(reason instanceof ApiError ? reason.message : "It was not sent."));
  };
  return (
    <section class="panel">
      <h2>Sessions</h2>
      <label class="check"><input type="checkbox" checked={all} onChange={(event) => setQuery({ sessions: event.currentTarget.checked ? "all" : "" })} />everyone's</label>
      {!data ? <Missing error={error} /> : (
        <Table
          caption="Sessions" rows={data.sessions} id={(session) => session.id}
          columns={[
            { title: "User", cell: (session) => <><Text of={session.user} />{session.current && <strong> (this one)</strong>}</> },
            { title: "Since", whole: true, cell: (session) => moment(epoch(session.begin) ?? 0) },
            { title: "Used", right: true, whole: true, cell: (session) => <><Ago at={session.lastUse} now={now} /> ago</> },
            { title: "From", whole: true, cell: (session) => <Text of={session.address} /> },
            { title: "With", wide: true, cell: (session) => <Text of={session.agent} /> },
            { title: "End", whole: true, cell: (session) => <button type="button" onClick={() => end(session)}>End</button> },
          ]}
        />
      )}
      {problem && <p class="refused" role="alert">{problem}</p>}
    </section>
  );
}

const CERTIFICATES: Record<string, readonly [string, string]> = {
  own: ["the controller", "by itself, after two thirds of its life"],
  ca: ["the cluster's CA, which signs all others", "by hand"],
};

/** Until when certificates are valid, and whether notifications arrive. */
function Controller({ certificateEnd }: { certificateEnd: string | null }): JSX.Element {
  const { data, error } = useData<Status>("/v1/status", once);
  const now = useNow(60);
  const rows = [
    ...(data?.certificates ?? []).map(({ name, end }) => ({ of: CERTIFICATES[name]?.[0] ?? name, end, renewed: CERTIFICATES[name]?.[1] ?? "–" })),
    ...(certificateEnd ? [{ of: "you, in this browser", end: certificateEnd, renewed: "by holdfast web" }] : []),
  ];
  const found = data?.deliveries;
  return (
    <section class="panel">
      <h2>Certificates and notifications</h2>
      {!data ? <Missing error={error} /> : (
        <>
          <Table
            caption="Certificates" rows={rows} id={(row) => row.of}
            columns={[
              { title: "Of", wide: true, cell: (row) => <Text of={row.of} /> },
              { title: "Valid until", whole: true, cell: (row) => moment(epoch(row.end) ?? 0) },
              { title: "Left", right: true, whole: true, cell: (row) => span((epoch(row.end) ?? now) - now) },
              { title: "Renewed", cell: (row) => row.renewed },
            ]}
          />
          <p class="soft">Each host and user has one of its own, renewed by its agent and by the command line.</p>
          {found && <p>Notifications since the controller's start: {found.delivered} delivered, {found.waiting} waiting, <span class={found.failing ? "bad" : ""}>{count(found.failing, "receiver")} out of reach</span>.</p>}
          {found && found.givenUp.length > 0 && (
            <Table
              caption="Notifications that were given up" rows={found.givenUp} id={(row) => row.to}
              columns={[
                { title: "To", cell: (row) => <Text of={row.to} /> },
                { title: "Given up", right: true, cell: (row) => row.count },
                { title: "Why", wide: true, cell: (row) => <Text of={row.reason} /> },
              ]}
            />
          )}
        </>
      )}
    </section>
  );
}

/** How projects share the GPUs, and what they use of their quotas, as `holdfast shares` prints it. */
function Shares(): JSX.Element {
  const { data, error } = useData<{ shares: Share[]; ordered: boolean }>("/v1/shares", (changes) => changes.jobs.length > 0);
  const rows = data?.shares ?? [];
  return (
    <section class="panel">
      <h2>Projects: shares and quotas</h2>
      {!data ? <Missing error={error} /> : !rows.length ? <Empty>No project has used anything.</Empty> : (
        <>
          <Table
            caption="Shares and quotas of projects" rows={rows} id={(row) => row.project}
            columns={[
              { title: "Project", wide: true, cell: (row) => <Text of={row.project} /> },
              { title: "GPUs", right: true, cell: (row) => <Used of={row.gpus} most={row.gpuQuota} /> },
              { title: "Running", right: true, cell: (row) => <Used of={row.running} most={row.runningQuota} /> },
              { title: "Waiting", right: true, cell: (row) => <Used of={row.waiting} most={row.waitingQuota} /> },
              { title: "Weight", right: true, cell: (row) => row.weight ?? "–" },
              { title: "Share", right: true, cell: (row) => `${fixed(100 * row.share, 1)}%` },
              { title: "Used, GPU hours", right: true, cell: (row) => row.usedGpuHours.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }) },
              { title: "Factor", right: true, cell: (row) => fixed(row.factor, 2) },
            ]}
          />
          {!data.ordered && <p class="soft">No project has a weight, so the queue is first come, first served. An admin sets one:</p>}
          <Command line="holdfast share set PROJECT --weight 2" />
        </>
      )}
    </section>
  );
}

/** What jobs take of the controller's disk, as `holdfast usage` prints it. */
function Disk(): JSX.Element {
  const { data, error } = useData<{ stored: Stored[] }>("/v1/usage", once);
  const rows = data?.stored ?? [];
  return (
    <section class="panel">
      <h2>Disk of the controller</h2>
      {!data ? <Missing error={error} /> : !rows.length ? <Empty>No job has left anything.</Empty> : (
        <Table
          caption="What jobs take of the controller's disk" rows={rows} id={(row) => row.subject}
          columns={[
            { title: "Of", cell: (row) => row.subject.split("/")[0] },
            { title: "Name", wide: true, cell: (row) => <Text of={row.subject.slice(row.subject.indexOf("/") + 1)} /> },
            { title: "Jobs", right: true, cell: (row) => row.jobs },
            { title: "MiB", right: true, cell: (row) => mib(row.bytes) },
            { title: "May take", right: true, cell: (row) => (row.limitBytes ? mib(row.limitBytes, 0) : "–") },
          ]}
        />
      )}
    </section>
  );
}

const mib = (bytes: number, digits = 1): string => (bytes / 2 ** 20).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** What is not there yet, or not for this user: said, not hidden. What is there stays while the controller is away. */
function Missing({ error }: { error: ApiError | null }): JSX.Element {
  return error ? <p class="soft"><Text of={error.message} /></p> : <Loading />;
}

function Users(): JSX.Element {
  const { data, error } = useData<{ users: User[] }>("/v1/users", once);
  return (
    <section class="panel">
      <h2>Users</h2>
      {!data ? <Missing error={error} /> : !data.users.length ? <Empty command="holdfast user add NAME">No users yet.</Empty> : (
        <Table
          caption="Users" rows={data.users} id={(user) => user.name}
          columns={[
            { title: "Name", cell: (user) => <Text of={user.name} /> },
            { title: "Rights", wide: true, cell: (user) => rights(user) },
            { title: "Accounts", wide: true, cell: (user) => <Text of={user.accounts.join(", ") || "–"} /> },
          ]}
        />
      )}
    </section>
  );
}

function Audit({ query }: { query: URLSearchParams }): JSX.Element {
  const refused = query.get("refused") === "yes";
  const asked = new URLSearchParams({ limit: "200", ...(refused && { refused: "true" }) });
  const { data, error } = useData<{ entries: AuditEntry[] }>(`/v1/audit?${asked}`, once);
  const entries = data?.entries ?? [];
  return (
    <section class="panel">
      <h2>Audit trail</h2>
      {!data ? <Missing error={error} /> : (
        <>
          <label class="check"><input type="checkbox" checked={refused} onChange={(event) => setQuery({ refused: event.currentTarget.checked ? "yes" : "" })} />only refused calls</label>
          {!entries.length ? <Empty>No entries.</Empty> : (
            <Table
              caption="Audit trail" rows={[...entries].reverse()} id={(_, index) => index}
              columns={[
                { title: "Time", whole: true, cell: (entry) => moment(epoch(entry.time) ?? 0) },
                { title: "Who", cell: (entry) => <Text of={entry.who} /> },
                { title: "From", cell: (entry) => <Text of={entry.peer} /> },
                { title: "Call", cell: (entry) => <Text of={entry.call} /> },
                { title: "Target", cell: (entry) => <Text of={entry.target} /> },
                { title: "Outcome", wide: true, cell: (entry) => <><span class={entry.outcome === "OK" ? "" : "bad"}><Text of={entry.outcome} /></span> <Text of={entry.message} /></> },
              ]}
            />
          )}
        </>
      )}
    </section>
  );
}
