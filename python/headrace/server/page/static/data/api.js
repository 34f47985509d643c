// Calls to the server, and what became of them in words.

// kind: "gone" | "key" | "long" | "busy" | "refused" | "broken", which says what may help.
export class CallError extends Error {
  constructor(kind, message, body = {}) {
    super(message);
    this.kind = kind;
    this.param = body.param ?? "";
  }
}

const TOO_LONG = ["too long", "context length", "maximum context", "max_model_len", "context_length"];

function headers(key) {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new CallError("gone", "The server does not answer. It may have been stopped, or the network is down.");
  }
  if (response.ok) return response;
  const body = (await response.json().catch(() => ({}))).error ?? {};
  throw refusal(response, body);
}

function refusal({ status, headers: given }, body) {
  const said = body.message ?? `The server answered ${status}.`;
  if (status === 401) return new CallError("key", `The server asks for an API key: ${said}.`, body);
  const wait = given.get("retry-after");
  if (wait) return new CallError("busy", `${sentence(said)} Try again in ${wait} s.`, body);
  if (status === 413) {
    return new CallError("long", `The message is too large for the server: ${said}.`, body);
  }
  return problem(said, body, status >= 500 ? "broken" : "refused");
}

function problem(said, body, kind) {
  const text = `${body.code ?? ""} ${said}`.toLowerCase();
  if (TOO_LONG.some((words) => text.includes(words))) {
    return new CallError("long", `The conversation is too long for this model: ${said}.`, body);
  }
  return new CallError(kind, sentence(said), body);
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

// [{id, max_model_len, capabilities}]
export async function listModels(key) {
  return (await (await call("v1/models", { headers: headers(key) })).json()).data;
}

// The objects of a streamed answer, as they come.
export async function* streamChat(body, key, signal) {
  const response = await call("v1/chat/completions", {
    method: "POST",
    headers: headers(key),
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  for await (const data of events(response.body, signal)) {
    if (data === "[DONE]") return;
    const piece = JSON.parse(data);
    if (piece.error) throw problem(piece.error.message, piece.error, "broken");
    yield piece;
  }
  throw new CallError("broken", "The connection broke off.");
}

async function* events(stream, signal) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (part.startsWith("data: ")) yield part.slice(6);
      }
    }
  } catch (error) {
    if (signal.aborted) throw error;
    throw new CallError("broken", "The connection to the server broke off.");
  } finally {
    reader.cancel().catch(() => {});
  }
}
