import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError, send } from "../core/api.ts";
import { Command, Dialog, Text } from "./bits.tsx";

type Given = Record<string, string>;

export interface Act {
  verb: string;
  title: string;
  /** What comes of it. */
  what: string;
  /** The command line that does the same. */
  command: (name: string, given: Given) => string;
  /** The name has to be typed. */
  final?: boolean;
  body?: Given;
  /** Of the address itself, in place of a POST of the verb. */
  method?: "DELETE";
  /** What may be given with it, by its name in the request. */
  fields?: { key: string; title: string; hint?: string }[];
}

interface Subject {
  of: "job" | "host" | "schedule" | "reservation";
  name: string;
  title: string;
  path: string;
  changed: () => void;
}

/** A button for each act; it asks first, and shows the command that does the same. */
export function Acts({ acts, ...subject }: Subject & { acts: Act[] }): JSX.Element {
  const [chosen, setChosen] = useState<Act | null>(null);
  return (
    <div class="actions">
      {acts.map((act) => (
        <button key={act.title} type="button" onClick={() => setChosen(act)}>{act.title}…</button>
      ))}
      {chosen && <Ask act={chosen} close={() => setChosen(null)} {...subject} />}
    </div>
  );
}

function Ask({ act, of, name, title, path, close, changed }: Subject & { act: Act; close: () => void }): JSX.Element {
  const [typed, setTyped] = useState("");
  const [given, setGiven] = useState<Given>({});
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const filled = Object.fromEntries(Object.entries(given).filter(([, value]) => value.trim()));
  const submit = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    const sent = act.method ? send(path, {}, act.method) : send(`${path}:${act.verb}`, { ...act.body, ...filled });
    sent.then(
      () => (changed(), close()),
      (error: unknown) => {
        setBusy(false);
        setProblem(error instanceof ApiError ? error.message : "It was not sent.");
      },
    );
  };
  return (
    <Dialog title={`${act.title} this ${of}?`} close={close}>
      <form onSubmit={submit}>
        <p><strong><Text of={title} /></strong></p>
        <p>{act.what}</p>
        {act.fields?.map(({ key, title: label, hint }) => (
          <label key={key} class="typed">
            <span>{label}</span>
            <input value={given[key] ?? ""} placeholder={hint ?? ""} onInput={(event) => setGiven({ ...given, [key]: event.currentTarget.value })} autocomplete="off" />
          </label>
        ))}
        <p class="soft">The same from a terminal:</p>
        <Command line={act.command(name, filled)} />
        {act.final && (
          <label class="typed">
            <span>Type <code>{name}</code> to go on</span>
            <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
          </label>
        )}
        {problem && <p class="refused" role="alert">{problem}</p>}
        <div class="buttons">
          <button type="button" onClick={close}>Keep as it is</button>
          <button type="submit" class={act.final ? "danger" : "primary"} disabled={busy || (act.final === true && typed !== name)}>
            {act.title}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
