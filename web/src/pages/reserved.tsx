import type { JSX } from "preact";
import { asked, deletes, forWhom, has, holder, inTheWay, keepsOff, setByCommand, times } from "../core/reserved.ts";
import type { Quota, Reservation } from "../core/reserved.ts";
import { hostPath } from "../core/route.ts";
import { Acts } from "../ui/acts.tsx";
import type { Act } from "../ui/acts.tsx";
import { Command, Empty, Loading, Stale, Table, Text, Used } from "../ui/bits.tsx";
import { useData } from "../ui/hooks.ts";
import type { Loaded } from "../ui/hooks.ts";

const SHOWN = 8;
const DELETE: Act = {
  verb: "delete",
  title: "Delete",
  what: "It ends at once: its hosts are open to all. Nothing that runs is stopped.",
  command: (name) => deletes(name),
  method: "DELETE",
};

/** Those that aren't over, with the hosts that each has at present. */
export function useReservations(): Loaded<{ reservations: Reservation[] }> {
  // To say whose jobs are in the way is to look at all that run: not at each change of one. Made and ended ones are told to all.
  return useData<{ reservations: Reservation[] }>("/v1/reservations", (changes) => changes.hosts.length > 0);
}

/** Which hosts are kept for which project and when, as `holdfast reservation` prints it; nothing where there are none and `quiet`. */
export function Reservations({ of, now, quiet = false }: { of: Loaded<{ reservations: Reservation[] }>; now: number; quiet?: boolean }): JSX.Element | null {
  const { data, error, again } = of;
  const rows = data?.reservations ?? [];
  if (quiet && !rows.length) return null;
  return (
    <section class="panel reservations">
      <h2>Reserved hosts</h2>
      {error && !data ? <p class="soft"><Text of={error.message} /></p> : !data ? <Loading /> : (
        <>
          <Stale of={of} />
          {rows.length === 0 && <p class="soft">No host is kept for a project or a user.</p>}
          {rows.length > 0 && (
            <Table
              caption="Reservations" rows={rows} id={(each) => each.name}
              columns={[
                { title: "Name", cell: (each) => <Text of={each.name} /> },
                { title: "For", cell: (each) => <Text of={forWhom(each) || "–"} /> },
                { title: "From", whole: true, cell: (each) => times(each, now)[0] },
                { title: "Until", whole: true, cell: (each) => times(each, now)[1] },
                { title: "Hosts", cell: (each) => <Hosts of={each} /> },
                { title: "Asks for", cell: (each) => <Text of={asked(each)} /> },
                { title: "Lacks", cell: (each) => <span class={each.lack ? "bad" : ""}><Text of={each.lack || "–"} /></span> },
                { title: "In the way", cell: (each) => inTheWay(each) || "–" },
                { title: "What it keeps off", wide: true, cell: (each) => <><Text of={keepsOff(each, now)} />{(each.reason || each.createdBy) && <small class="soft"> <Text of={[each.reason, each.createdBy && `by ${each.createdBy}`].filter(Boolean).join(", ")} /></small>}</> },
                { title: "End", whole: true, cell: (each) => <Acts acts={[DELETE]} of="reservation" name={each.name} title={each.name} path={`/v1/reservations/${encodeURIComponent(each.name)}`} changed={again} /> },
              ]}
            />
          )}
          <p class="soft">An admin reserves hosts for a project:</p>
          <Command line="holdfast reservation create NAME --project PROJECT --count 4 --for 8h" />
        </>
      )}
    </section>
  );
}

function Hosts({ of }: { of: Reservation }): JSX.Element {
  const shown = of.chosenHosts.slice(0, SHOWN);
  return (
    <>
      {has(of)}{shown.length > 0 && ": "}
      {shown.map((name, index) => <span key={name}>{index > 0 && ", "}<a href={hostPath(name)}><Text of={name} /></a></span>)}
      {of.chosenHosts.length > SHOWN && ` and ${of.chosenHosts.length - SHOWN} more`}
    </>
  );
}

/** What projects and users may hold, and hold, as `holdfast quota list` prints it. */
export function Quotas(): JSX.Element {
  const { data, error } = useData<{ quotas: Quota[] }>("/v1/quotas", (changes) => changes.jobs.length > 0);
  const rows = data?.quotas ?? [];
  return (
    <section class="panel">
      <h2>Quotas</h2>
      {error && !data ? <p class="soft"><Text of={error.message} /></p> : !data ? <Loading /> : (
        <>
          {!rows.length ? <Empty>Nothing is limited.</Empty> : (
            <Table
              caption="Quotas" rows={rows} id={holder}
              columns={[
                { title: "Of", wide: true, cell: (each) => <Text of={holder(each)} /> },
                { title: "GPUs", right: true, cell: (each) => <Used of={each.gpus} most={each.limits.gpus} /> },
                { title: "Running", right: true, cell: (each) => <Used of={each.runningJobs} most={each.limits.runningJobs} /> },
                { title: "Waiting", right: true, cell: (each) => <Used of={each.waitingJobs} most={each.limits.waitingJobs} /> },
                { title: "Priority, at most", right: true, cell: (each) => each.limits.maxPriority ?? "–" },
                { title: "Set by command", cell: (each) => setByCommand(each) || "–" },
              ]}
            />
          )}
          <p class="soft">An admin sets limits, and takes those back that were set by command:</p>
          <Command line="holdfast quota set --project PROJECT --gpus 32" />
          <Command line="holdfast quota clear --project PROJECT" />
        </>
      )}
    </section>
  );
}
