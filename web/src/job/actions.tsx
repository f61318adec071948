import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError, send } from "../core/api.ts";
import type { Job } from "../core/types.ts";
import { ended, stateName } from "../core/words.ts";
import { Command, Dialog, Text } from "../ui/bits.tsx";

interface Action {
  verb: string;
  title: string;
  /** What comes of it. */
  what: string;
  command: (id: string) => string;
  /** The name of the job has to be typed. */
  final?: boolean;
  body?: Record<string, string>;
}

const RESTART: Action = {
  verb: "restart",
  title: "Restart",
  what: "Stops all ranks and launches them again on the same hosts, as the next generation.",
  command: (id) => `holdfast job restart ${id}`,
};
const PAUSE: Action = {
  verb: "pause",
  title: "Pause",
  what: "Stops all ranks and frees the hosts. The job stays, paused, until it is resumed.",
  command: (id) => `holdfast job pause ${id}`,
};
const RESUME: Action = {
  verb: "resume",
  title: "Resume",
  what: "Queues the job again.",
  command: (id) => `holdfast job resume ${id}`,
};
const HOLD: Action = {
  verb: "hold",
  title: "Hold",
  what: "For two hours no hang of this job is acted on, so that you can look at it.",
  command: (id) => `holdfast job hang-action ${id} off --for 2h`,
  body: { duration: "2h" },
};
const CANCEL: Action = {
  verb: "cancel",
  title: "Cancel",
  what: "Ends the job for good. Its ranks are stopped, and it is not tried again.",
  command: (id) => `holdfast job cancel ${id}`,
  final: true,
};

function possible(job: Job): Action[] {
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
  const [chosen, setChosen] = useState<Action | null>(null);
  return (
    <div class="actions">
      {possible(job).map((action) => (
        <button key={action.verb} type="button" onClick={() => setChosen(action)}>{action.title}…</button>
      ))}
      {chosen && <Ask action={chosen} job={job} close={() => setChosen(null)} changed={changed} />}
    </div>
  );
}

function Ask({ action, job, close, changed }: { action: Action; job: Job; close: () => void; changed: () => void }): JSX.Element {
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const act = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    send(`/v1/jobs/${encodeURIComponent(job.id)}:${action.verb}`, action.body ?? {}).then(
      () => (changed(), close()),
      (error: unknown) => {
        setBusy(false);
        setProblem(error instanceof ApiError ? error.message : "It was not sent.");
      },
    );
  };
  return (
    <Dialog title={`${action.title} this job?`} close={close}>
      <form onSubmit={act}>
        <p><strong><Text of={job.displayName || job.id} /></strong></p>
        <p>{action.what}</p>
        <p class="soft">The same from a terminal:</p>
        <Command line={action.command(job.id)} />
        {action.final && (
          <label class="typed">
            <span>Type <code>{job.id}</code> to go on</span>
            <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
          </label>
        )}
        {problem && <p class="refused" role="alert">{problem}</p>}
        <div class="buttons">
          <button type="button" onClick={close}>Keep as it is</button>
          <button type="submit" class={action.final ? "danger" : "primary"} disabled={busy || (action.final === true && typed !== job.id)}>
            {action.title}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
