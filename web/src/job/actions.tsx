import type { JSX } from "preact";
import type { Job } from "../core/types/job.ts";
import { ended, stateName } from "../core/words.ts";
import { Acts } from "../ui/acts.tsx";
import type { Act } from "../ui/acts.tsx";

const RESTART: Act = {
  verb: "restart",
  title: "Restart",
  what: "Stops all ranks and launches them again on the same hosts, as the next generation.",
  command: (id) => `holdfast job restart ${id}`,
};
const PAUSE: Act = {
  verb: "pause",
  title: "Pause",
  what: "Stops all ranks and frees the hosts. The job stays, paused, until it is resumed.",
  command: (id) => `holdfast job pause ${id}`,
};
const RESUME: Act = {
  verb: "resume",
  title: "Resume",
  what: "Queues the job again.",
  command: (id) => `holdfast job resume ${id}`,
};
const HOLD: Act = {
  verb: "hold",
  title: "Hold",
  what: "For two hours no hang of this job is acted on, so that you can look at it.",
  command: (id) => `holdfast job hang-action ${id} off --for 2h`,
  body: { duration: "2h" },
};
const CANCEL: Act = {
  verb: "cancel",
  title: "Cancel",
  what: "Ends the job for good. Its ranks are stopped, and it is not tried again.",
  command: (id) => `holdfast job cancel ${id}`,
  final: true,
};

function possible(job: Job): Act[] {
  if (ended(job.state)) return [];
  switch (stateName(job.state)) {
    case "PAUSED": return [RESUME, CANCEL];
    case "QUEUED": return [PAUSE, CANCEL];
    case "CANCELLING": return [];
    case "RUNNING": return [HOLD, RESTART, PAUSE, CANCEL];
    default: return [PAUSE, CANCEL];
  }
}

/** What can be done with the job now, each with the command line that does the same. */
export function Actions({ job, changed }: { job: Job; changed: () => void }): JSX.Element {
  const path = `/v1/jobs/${encodeURIComponent(job.id)}`;
  return <Acts acts={possible(job)} of="job" name={job.id} title={job.displayName || job.id} path={path} changed={changed} />;
}
