/** Bodies that go on, as lines: NDJSON, and server-sent events without an `EventSource`, which can't send headers. */

/** The lines of a body as they come; each piece is a sign of life, lines or not. */
export async function* textLines(body: ReadableStream<Uint8Array>, heard: () => void = () => undefined): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  // A line of a log comes in many pieces: joined to each of them, its beginning would be copied again and again.
  let open: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      heard();
      const text = decoder.decode(value, { stream: !done });
      let begin = 0;
      for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", begin)) {
        open.push(text.slice(begin, end));
        yield open.join("");
        open = [];
        begin = end + 1;
      }
      if (begin < text.length) open.push(text.slice(begin));
      if (done) {
        if (open.length) yield open.join("");
        return;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/** Server-sent events; comments are left out. */
export async function* serverEvents(lines: AsyncIterable<string>): AsyncGenerator<ServerEvent> {
  let [id, event, data] = ["", "message", [] as string[]];
  for await (const raw of lines) {
    const line = raw.replace(/\r$/, "");
    if (line === "") {
      if (data.length) yield { id, event, data: data.join("\n") };
      [event, data] = ["message", []];
      continue;
    }
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "id") id = value;
    else if (name === "event") event = value;
    else if (name === "data") data.push(value);
  }
}
