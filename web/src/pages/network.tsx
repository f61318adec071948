import type { JSX } from "preact";
import { domains } from "../core/network.ts";
import { jobPath } from "../core/route.ts";
import type { Host } from "../core/types/host.ts";
import { Table, Text } from "../ui/bits.tsx";

const MOST_JOBS = 5;

/** What is free at each level of the network, which decides how near to each other a job's workers can be. */
export function Network({ hosts, levels }: { hosts: readonly Host[]; levels: readonly string[] }): JSX.Element {
  return (
    <section class="panel network">
      <h2>Levels of the network</h2>
      <p class="soft">From the outermost: {levels.map((level, index) => <>{index > 0 && ", "}<Text of={level} /></>)}. A job with more than one worker is placed as near as it can be.</p>
      <Table
        caption="Levels of the network" rows={domains(hosts, levels)} id={(domain) => JSON.stringify(domain.path)}
        columns={[
          { title: "Level", cell: (domain) => <Text of={domain.level} /> },
          { title: "Domain", wide: true, cell: (domain) => <Text of={domain.path.map((label) => label || "none").join(" / ")} /> },
          { title: "Hosts ready", right: true, cell: (domain) => `${domain.ready}/${domain.hosts}` },
          { title: "GPUs free", right: true, cell: (domain) => (domain.gpus ? `${domain.free}/${domain.gpus}` : "–") },
          { title: "Hosts all free", right: true, cell: (domain) => domain.whole },
          { title: "Jobs", wide: true, cell: (domain) => <Jobs ids={domain.jobs} /> },
        ]}
      />
    </section>
  );
}

function Jobs({ ids }: { ids: readonly string[] }): JSX.Element {
  return (
    <>
      {ids.slice(0, MOST_JOBS).map((id, index) => <span key={id}>{index > 0 && ", "}<a href={jobPath(id)}><Text of={id} /></a></span>)}
      {ids.length > MOST_JOBS && `, ${ids.length - MOST_JOBS} more`}
    </>
  );
}
