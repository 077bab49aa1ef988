// Questions to the server. A newer question of the same kind ends the older one.
const client = crypto.randomUUID();
const running = new Map();

/** The answer, or null if a newer question of this kind was asked meanwhile. Errors have one sentence for people. */
export async function ask(name, question = {}, kind = name) {
  running.get(kind)?.abort();
  const controller = new AbortController();
  running.set(kind, controller);
  try {
    const response = await fetch(`api/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...question, client: `${client} ${kind}` }),
      signal: controller.signal,
    });
    if (response.status === 409) return null;
    const answer = await response.json();
    if (controller.signal.aborted) return null;
    if (!response.ok) throw new Error(answer.error ?? `the server answered ${response.status}`);
    return answer;
  } catch (error) {
    if (error.name === "AbortError") return null;
    if (error instanceof TypeError) throw new Error("the server does not answer; was it closed?");
    throw error;
  }
}

/** End the question of a kind that is under way. */
export const drop = (kind) => running.get(kind)?.abort();
