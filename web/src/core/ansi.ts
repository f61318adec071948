/** Output of ranks as runs of plain text with a colour each: SGR is drawn, every other control sequence is dropped. */

export interface Run {
  text: string;
  /** Class names such as `a-31 a-bold`; empty for plain text. */
  look: string;
}

export interface Pen {
  foreground: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

export const PLAIN: Readonly<Pen> = { foreground: "", bold: false, dim: false, italic: false, underline: false };

/** Runs of a line that are drawn apart; what follows them is one plain run. Each costs a tab an element. */
const MOST_RUNS = 200;

/*
 * CSI, OSC/DCS/APC/PM/SOS up to their end, the next escape or the line's, and the two-character sequences. Each begins and
 * matches or fails within itself: one that was tried up to its end in vain, from each of its characters, would take minutes.
 */
const SEQUENCE =
  /\u001b\[([0-9;:<=>?]*)[ -/]*([@-~]|$)|(?:\u001b[\]PX^_]|[\u0090\u0098\u009d-\u009f])[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c|(?=\u001b)|$)|\u009b[0-9;:<=>?]*[ -/]*[@-~]|\u001b[ -/]*[0-~]|\u001b/g;
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb]/g;

/** The runs of one line, from the pen that the line before left; the second is the pen that this one leaves. */
export function runs(line: string, pen: Readonly<Pen> = PLAIN): [Run[], Pen] {
  const found: Run[] = [];
  const rest: string[] = [];
  const now: Pen = { ...pen };
  let at = 0;
  const take = (text: string): void => {
    const shown = text.replace(UNSEEN, "");
    if (!shown) return;
    if (found.length < MOST_RUNS) found.push({ text: shown, look: lookOf(now) });
    else rest.push(shown);
  };
  const drawn = overwritten(line);
  for (const match of drawn.matchAll(SEQUENCE)) {
    take(drawn.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] === "m") select(now, match[1] ?? "");
  }
  take(drawn.slice(at));
  if (rest.length) found.push({ text: rest.join(""), look: "" });
  return [found, now];
}

/** What remains of a line on a terminal once its carriage returns have been followed, sequences of width 0 kept. */
export function overwritten(line: string): string {
  let end = line.length;
  while (line[end - 1] === "\r") end--;
  const parts = line.slice(0, end).split("\r");
  // A progress bar's last picture is the one that counts; pictures of other widths would leave ends of older ones.
  let above = parts.pop() ?? "";
  let drawn = erased(above);
  let width = bare(drawn).length;
  while (parts.length && !ERASES_ON.test(above)) {
    above = parts.pop() ?? "";
    const seen = bare(erased(above));
    drawn += seen.slice(width);
    width = Math.max(width, seen.length);
  }
  return drawn;
}

/** The rest of the line, or all of it, is erased; and what is before the cursor. */
const ERASES_ON = /\u001b\[[02]?K/;
const ERASES_BEFORE = /\u001b\[[12]K/;

/** A picture with blanks where it has erased what it had drawn; colours stay. */
function erased(picture: string): string {
  const parts = picture.split(ERASES_BEFORE);
  const rest = parts.pop() ?? "";
  return parts.length ? blank(parts.join("")) + rest : rest;
}

function blank(text: string): string {
  let found = "";
  let at = 0;
  for (const match of text.matchAll(SEQUENCE)) {
    found += " ".repeat(match.index - at) + match[0];
    at = match.index + match[0].length;
  }
  return found + " ".repeat(text.length - at);
}

const bare = (text: string): string => text.replace(SEQUENCE, "");

function select(pen: Pen, given: string): void {
  const codes = given.replaceAll(":", ";").split(";").map(Number);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) Object.assign(pen, PLAIN);
    else if (code === 1) pen.bold = true;
    else if (code === 2) pen.dim = true;
    else if (code === 3) pen.italic = true;
    else if (code === 4) pen.underline = true;
    else if (code === 22) pen.bold = pen.dim = false;
    else if (code === 23) pen.italic = false;
    else if (code === 24) pen.underline = false;
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) pen.foreground = `a-${code}`;
    else if (code === 39) pen.foreground = "";
    else if (code === 38 || code === 48) {
      const indexed = codes[i + 1] === 5;
      const index = codes[i + 2] ?? 0;
      if (code === 38 && indexed && index < 16) pen.foreground = `a-${index < 8 ? 30 + index : 82 + index}`;
      i += indexed ? 2 : 4;
    }
  }
}

function lookOf(pen: Pen): string {
  return [pen.foreground, pen.bold && "a-bold", pen.dim && "a-dim", pen.italic && "a-italic", pen.underline && "a-under"]
    .filter(Boolean)
    .join(" ");
}
