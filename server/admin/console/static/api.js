// Requests to the broker. The token comes in the fragment of the address, which a browser sends to no server.

const KEPT = "ottla-token";
let writeToken = "";

export class Refusal extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

export function takeToken() {
  const match = /^#token=([^&/]+)/.exec(location.hash);
  if (!match) return;
  // First, so that it is not left in the address if it is no token.
  history.replaceState(null, "", "#/topics");
  try { keepToken(decodeURIComponent(match[1])); } catch (error) { if (!(error instanceof URIError)) throw error; }
}

const keep = (header) => { writeToken = ""; sessionStorage.setItem(KEPT, header); };
export const keepToken = (token) => keep("Bearer " + token);
export const keepLogin = (user, password) => keep("Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`))));
export function forget() { writeToken = ""; sessionStorage.removeItem(KEPT); }
export function takeWriteToken(token) { writeToken = token ? "Bearer " + token : ""; }

// The token that the broker has sent comes first, because a link from elsewhere may have brought another one.
function headers() {
  const header = writeToken || sessionStorage.getItem(KEPT);
  return header ? { Authorization: header } : {};
}

async function answered(request) {
  let response;
  try {
    response = await request;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The broker does not answer.");
  }
  if (!response.ok) throw new Refusal(response.status, (await response.text()).trim());
  return response;
}

const address = (name, parameters) => {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `/api/${name}` + (given.length ? "?" + new URLSearchParams(given) : "");
};

export async function get(name, parameters = {}, signal = undefined) {
  return (await answered(fetch(address(name, parameters), { headers: headers(), signal }))).json();
}

// Makes signals for the requests of a view. The next signal, or the end of the view, aborts the one before, so that no older answer comes after a newer one.
export function replacing(ended) {
  let running = new AbortController();
  ended.addEventListener("abort", () => running.abort());
  return () => {
    running.abort();
    running = new AbortController();
    if (ended.aborted) running.abort();
    return running.signal;
  };
}

export async function post(name, body) {
  const options = { method: "POST", headers: { "Content-Type": "application/json", ...headers() } };
  return (await answered(fetch(address(name, {}), { ...options, body: JSON.stringify(body) }))).json();
}

// Server-sent events, read by fetch because EventSource sends no token.
export async function* events(name, parameters, signal) {
  const response = await answered(fetch(address(name, parameters), { headers: headers(), signal }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
  }
}
