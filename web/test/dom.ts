/** As much of a browser as Preact and the page ask for, with a clock that the tests move. Imported ahead of the page. */
import { mock } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { h, options, render } from "preact";
import type { FunctionComponent } from "preact";

export class Node extends EventTarget {
  parentNode: Node | null = null;
  childNodes: Node[] = [];
  attributes: { name: string; value: string }[] = [];
  style: Record<string, string> = {};
  scrollTop = 0;
  clientHeight = 800;
  scrollHeight = 0;
  readonly nodeType: number;
  readonly localName: string;
  readonly namespaceURI = "http://www.w3.org/1999/xhtml";
  data: string;

  constructor(localName: string, data = "") {
    super();
    this.nodeType = localName ? 1 : 3;
    this.localName = localName;
    this.data = data;
  }

  get firstChild(): Node | null {
    return this.childNodes[0] ?? null;
  }

  get nextSibling(): Node | null {
    const beside = this.parentNode?.childNodes ?? [];
    return beside[beside.indexOf(this) + 1] ?? null;
  }

  get textContent(): string {
    return this.nodeType === 3 ? this.data : this.childNodes.map((each) => each.textContent).join("");
  }

  insertBefore(child: Node, before: Node | null): void {
    child.remove();
    this.childNodes.splice(before ? this.childNodes.indexOf(before) : this.childNodes.length, 0, child);
    child.parentNode = this;
  }

  removeChild(child: Node): void {
    this.childNodes = this.childNodes.filter((each) => each !== child);
    child.parentNode = null;
  }

  remove(): void {
    this.parentNode?.removeChild(this);
  }

  setAttribute(name: string, value: string): void {
    this.removeAttribute(name);
    this.attributes.push({ name, value: String(value) });
  }

  removeAttribute(name: string): void {
    this.attributes = this.attributes.filter((each) => each.name !== name);
  }

  /** Itself and all within that have the name. */
  all(name: string): Node[] {
    return [...(this.localName === name ? [this] : []), ...this.childNodes.flatMap((each) => each.all(name))];
  }
}

class Ignored {
  observe(): void {}
  disconnect(): void {}
  close(): void {}
  postMessage(): void {}
}

const nothing = (): void => undefined;
const document: object = Object.assign(new EventTarget(), {
  hidden: false,
  title: "",
  documentElement: { dataset: {} },
  createElementNS: (_: string, name: string) => new Node(name),
  createTextNode: (text: string) => new Node("", text),
});
const location = { pathname: "/", search: "", hash: "", origin: "https://page.example" };
const navigator = { locks: { request: (_name: string, _options: object, work: () => unknown) => Promise.resolve(work()) } };
const matchMedia = (): object => Object.assign(new EventTarget(), { matches: false });
for (const [name, value] of Object.entries({
  document, location, navigator, matchMedia, BroadcastChannel: Ignored, ResizeObserver: Ignored,
  addEventListener: nothing, removeEventListener: nothing,
})) {
  Object.defineProperty(globalThis, name, { value, configurable: true });
}

/** What a path is answered with, one after the other; the last goes on. */
export type Answers = Record<string, ((signal?: AbortSignal | null) => Response)[]>;

/** Answer the page's calls by the longest beginning of their path; what none is for is never answered. Returns what was asked. */
export function answer(answers: Answers): string[] {
  const asked: string[] = [];
  const given = new Map<string, number>();
  mock.method(globalThis, "fetch", (path: string, init: RequestInit) => {
    asked.push(path);
    const known = Object.keys(answers).filter((each) => path.startsWith(each)).sort((a, b) => b.length - a.length)[0];
    return new Promise<Response>((done, fail) => {
      init.signal?.addEventListener("abort", () => fail(new DOMException("aborted", "AbortError")));
      if (known === undefined) return;
      const number = given.get(known) ?? 0;
      given.set(known, number + 1);
      const all = answers[known] ?? [];
      done(all[Math.min(number, all.length - 1)]?.(init.signal) ?? new Response("{}"));
    });
  });
  return asked;
}

export const json = (body: object, status = 200) => (): Response => new Response(JSON.stringify(body), { status });
export const refused = (status: number, message: string) => json({ error: { message } }, status);
/** An answer whose connection breaks in its middle. */
export const cut = (text = '{"hosts": [') => (): Response =>
  new Response(new ReadableStream({ start: (to) => to.enqueue(new TextEncoder().encode(text)), pull: (to) => to.error(new TypeError("terminated")) }));

/** An answer that goes on: what is said in it, and its end. */
export class Stream {
  #to: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** That nobody reads it any more. */
  left = false;
  readonly body = new ReadableStream<Uint8Array>({ start: (to) => void (this.#to = to), cancel: () => void (this.left = true) });

  readonly open = (signal?: AbortSignal | null): Response => {
    signal?.addEventListener("abort", () => ((this.left = true), this.#to?.error(new DOMException("aborted", "AbortError"))));
    return new Response(this.body);
  };

  say(text: string): void {
    this.#to?.enqueue(new TextEncoder().encode(text));
  }

  /** As a change of everything, where this is the stream of changes. */
  change(): void {
    this.say(`event: change\ndata: ${JSON.stringify({ cursor: 1, jobs: [], hosts: [], all: true })}\n\n`);
  }

  break(): void {
    this.#to?.error(new TypeError("terminated"));
  }
}

interface Due {
  at: number;
  every: number | null;
  work: () => void;
}

let gone = 0;
const due = new Map<number, Due>();

/** From here on time goes by in `until` and `pass` alone. */
export function clock(): void {
  due.clear();
  let last = 0;
  const add = (every: boolean) => (work: () => void, ms = 0): number => {
    due.set(++last, { at: gone + ms, every: every ? ms : null, work });
    return last;
  };
  const remove = (id: number): void => void due.delete(id);
  for (const [name, does] of [["setTimeout", add(false)], ["setInterval", add(true)], ["clearTimeout", remove], ["clearInterval", remove]] as const) {
    mock.method(globalThis, name, does as never);
  }
  // A new one each time, or effects of a test that has ended, whose timer is gone, would hold up those that come.
  options.requestAnimationFrame = (work) => void setTimeout(work);
}

/** Let so much time go by, and all that was due in it happen. */
export async function pass(ms: number): Promise<void> {
  for (const end = gone + ms; ; ) {
    await immediate();
    await immediate();
    const [id, next] = [...due].reduce<[number, Due | null]>((first, [each, of]) => (of.at <= (first[1]?.at ?? end) ? [each, of] : first), [0, null]);
    if (!next) {
      gone = end;
      return;
    }
    gone = next.at;
    if (next.every === null) due.delete(id);
    else next.at += next.every;
    next.work();
  }
}

/** Let time go by until something holds, at most as long as that. */
export async function until(holds: () => boolean, ms = 60_000): Promise<void> {
  for (const end = gone + ms; !holds(); ) {
    if (gone > end) throw new Error(`not within ${ms} ms`);
    await pass(50);
  }
}

/** Draw a part of the page; `gone` takes it away. */
export function draw<P extends object>(part: FunctionComponent<P>, props: P): { root: Node; text: () => string; gone: () => void } {
  const root = new Node("main");
  const place = root as unknown as Element;
  render(h(part as FunctionComponent<object>, props), place);
  return { root, text: () => root.textContent, gone: () => render(null, place) };
}

/** Press the button with these words. */
export function press(root: Node, words: string): void {
  const button = root.all("button").find((each) => each.textContent === words);
  if (!button) throw new Error(`no button ${words} in ${root.textContent}`);
  button.dispatchEvent(new Event("click"));
}
