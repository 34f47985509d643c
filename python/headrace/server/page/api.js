// Calls to the server.

function headers(key) {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const wait = response.headers.get("retry-after");
  const again = wait ? ` Try again in ${wait} s.` : "";
  throw new Error((body.error?.message ?? `The server answered ${response.status}.`) + again);
}

export async function listModels(key) {
  const response = await checked(await fetch("v1/models", { headers: headers(key) }));
  return (await response.json()).data.map((model) => model.id);
}

// The objects of a streamed answer, as they come.
export async function* streamChat(body, key, signal) {
  const response = await checked(
    await fetch("v1/chat/completions", {
      method: "POST",
      headers: headers(key),
      body: JSON.stringify({ ...body, stream: true }),
      signal,
    }),
  );
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const piece = JSON.parse(data);
    if (piece.error) throw new Error(piece.error.message);
    yield piece;
  }
  throw new Error("The connection broke off.");
}

async function* events(stream) {
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
  } finally {
    reader.cancel().catch(() => {});
  }
}
