/** A terminal's screen: xterm.js, in the page's colours and as large as its place. Loaded with the first shell. */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import type { Size } from "../core/input.ts";

export interface Screen {
  readonly size: Size;
  /** Show bytes; over once few of them wait to be drawn, which is how fast a shell may write. */
  show(data: Uint8Array): Promise<void>;
  focus(): void;
  /** Whether what is shown is read aloud by a screen reader. */
  aloud(on: boolean): void;
  close(): void;
}

export interface Heard {
  typed(data: Uint8Array): void;
  resized(size: Size): void;
  /** By Ctrl-Shift-Enter: Tab is the program's. */
  left(): void;
}

const HISTORY_LINES = 5_000;
const AHEAD_BYTES = 128 << 10;

/** A screen in `place`, which tells what is typed on it. */
export function screen(place: HTMLElement, heard: Heard): Screen {
  const terminal = new Terminal({
    ...look(),
    allowProposedApi: false,
    cursorBlink: false,
    fontSize: 14,
    lineHeight: 1.2,
    linkHandler: { activate: () => undefined },
    minimumContrastRatio: 4.5,
    scrollback: HISTORY_LINES,
  });
  const fitting = new FitAddon();
  terminal.loadAddon(fitting);
  terminal.open(place);
  terminal.onData((text) => heard.typed(new TextEncoder().encode(text)));
  terminal.onBinary((text) => heard.typed(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  terminal.onResize(({ rows, cols }) => heard.resized({ rows, columns: cols }));
  terminal.attachCustomKeyEventHandler((event) => own(event, terminal, heard));
  let ahead = 0;
  const show = (data: Uint8Array): Promise<void> => {
    ahead += data.length;
    const drawn = new Promise<void>((done) => terminal.write(data, () => ((ahead -= data.length), done())));
    return ahead > AHEAD_BYTES ? drawn : Promise.resolve();
  };
  const fit = (): void => {
    if (place.clientWidth) fitting.fit();
  };
  fit();
  const placed = new ResizeObserver(fit);
  placed.observe(place);
  const themed = new MutationObserver(() => Object.assign(terminal.options, look()));
  themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return {
    get size() {
      return { rows: terminal.rows, columns: terminal.cols };
    },
    show,
    focus: () => terminal.focus(),
    aloud: (on) => void (terminal.options.screenReaderMode = on),
    close: () => (placed.disconnect(), themed.disconnect(), terminal.dispose()),
  };
}

/** Whether the terminal gets this key: two are the page's. */
function own(event: KeyboardEvent, terminal: Terminal, heard: Heard): boolean {
  if (!event.ctrlKey || !event.shiftKey || !["C", "Enter"].includes(event.key)) return true;
  event.preventDefault();
  if (event.type !== "keydown") return false;
  if (event.key === "Enter") heard.left();
  else void navigator.clipboard.writeText(terminal.getSelection());
  return false;
}

function look(): { fontFamily: string; theme: Record<string, string> } {
  const style = getComputedStyle(document.documentElement);
  const value = (name: string): string => style.getPropertyValue(name).trim();
  const [ink, accent] = [value("--ink"), value("--accent")];
  return {
    fontFamily: value("--mono"),
    theme: { background: value("--console"), foreground: ink, cursor: ink, cursorAccent: value("--console"), selectionBackground: `${accent}55` },
  };
}
