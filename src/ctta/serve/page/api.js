// Requests to the service. The token is kept for this tab only.

const KEY = "ctta-token";

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Addresses are relative, so that the page works behind a proxy under any prefix.
export const streamPath = (name, rest = "") => `ctta/streams/${encodeURIComponent(name)}${rest}`;

export async function request(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const file = body instanceof Blob;
  if (body !== undefined) headers["Content-Type"] = file ? "application/octet-stream" : "application/json";
  const response = await fetch(path, { method, headers, signal, body: file ? body : body && JSON.stringify(body) });
  if (!response.ok) throw new Refused(response.status, await reason(response));
  return response;
}

export const readJson = async (path) => (await request(path)).json();

async function reason(response) {
  let detail = "";
  try {
    detail = (await response.json()).error ?? "";
  } catch {
    // Not JSON, so probably a proxy's error page: the status is enough.
  }
  if (response.status === 401) return `A valid token is needed (401). ${detail}`;
  if (response.status === 403) return `This token does not have the right to do that (403). ${detail}`;
  return `${detail || response.statusText} (${response.status})`;
}

// Server-sent events by fetch, because EventSource cannot send a token. Resolves when the stream ends.
export async function listen(path, onEvent, signal) {
  const reader = (await request(path, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split(/\r?\n\r?\n/);
    text = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (data) onEvent(JSON.parse(data));
    }
  }
}
