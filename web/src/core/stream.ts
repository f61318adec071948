/** Bodies that go on, as lines: NDJSON, and server-sent events without an `EventSource`, which can't send headers. */

/** The lines of a body as they come. */
export async function* textLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += decoder.decode(value, { stream: !done });
      const parts = rest.split("\n");
      rest = parts.pop() ?? "";
      yield* parts;
      if (done) {
        if (rest) yield rest;
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
