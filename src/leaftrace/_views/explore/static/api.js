// Questions to the server. A newer question of the same kind ends the older one.
const client = crypto.randomUUID?.() ?? String(Math.random());
const running = new Map();

// In a notebook, questions go through its kernel (widget.py); elsewhere to the server.
const post = globalThis.leaftracePost ?? (async (name, body, signal) => {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(`api/${name}`, { method: "POST", headers, body: JSON.stringify(body), signal });
  return { status: response.status, answer: await response.json() };
});

/** The answer, or null if a newer question of this kind was asked meanwhile. Errors have one sentence for people. */
export async function ask(name, question = {}, kind = name) {
  running.get(kind)?.abort();
  const controller = new AbortController();
  running.set(kind, controller);
  try {
    const { status, answer } = await post(name, { ...question, client: `${client} ${kind}` }, controller.signal);
    if (status === 409 || controller.signal.aborted) return null;
    if (status !== 200) throw new Error(answer.error ?? `the server answered ${status}`);
    return answer;
  } catch (error) {
    if (error.name === "AbortError") return null;
    if (error instanceof TypeError) throw new Error("the server does not answer; was it closed?");
    throw error;
  }
}

/** End the question of a kind that is under way. */
export const drop = (kind) => running.get(kind)?.abort();
