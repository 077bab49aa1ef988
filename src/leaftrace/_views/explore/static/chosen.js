// The chosen test row: its prediction, and how certain the model is of other classes.
import { ask } from "./api.js";
import { h, problem, replace } from "./dom.js";
import { brief, number, percent } from "./format.js";
import { state, when } from "./state.js";

const listeners = [];
let present = null;

/** Call a function with the answer about the chosen row, now if it is there and whenever it changes. */
export function whenBehind(listener) {
  listeners.push(listener);
  if (present) listener(present);
  return () => listeners.splice(listeners.indexOf(listener), 1);
}

export function showChosen(root, facts) {
  const load = async () => {
    root.setAttribute("aria-busy", "true");
    try {
      const answer = await ask("row", { position: state.row, top: state.top });
      if (answer === null) return;
      present = answer;
      const verdict = h("p", { class: "finding", id: "finding", role: "status" });
      replace(root, card(answer, facts), verdict);
      listeners.forEach((listener) => listener(answer));
      problem(null);
      root.removeAttribute("aria-busy");
      const found = await ask("finding", { position: answer.position });
      if (found?.kind) replace(verdict, h("b", {}, found.kind[0].toUpperCase() + found.kind.slice(1)), found.facts ? `: ${found.facts}` : "", found.evidence || found.noise ? h("span", { class: "quiet" }, ` ${found.evidence ? `Evidence: ${found.evidence}. ` : ""}${found.noise}`) : "");
      else if (found?.facts) replace(verdict, h("span", { class: "quiet" }, found.facts));
    } catch (error) { problem(error); }
    root.removeAttribute("aria-busy");
  };
  when(["row", "top"], load);
  load();
}

const entry = (term, ...text) => h("div", {}, h("dt", {}, term), h("dd", {}, ...text));

/** A prediction in words: the class and the probability of the label, or the number. */
export function inWords(outcome, label) {
  if ("predicted" in outcome) {
    const sure = outcome.probability === undefined ? "" : ` (${percent(outcome.probability)} for ${brief(label)})`;
    return `${brief(outcome.predicted)}${sure}`;
  }
  return number(outcome.prediction);
}

export function card(row, facts) {
  const right = row.correct;
  const likely = (row.probabilities ?? []).map((p) => `${brief(p.label)} ${percent(p.probability)}`).join(", ");
  return h("dl", { class: "card" },
    entry("row", h("b", { class: "label", title: row.row }, brief(row.row))),
    entry("label", h("span", { class: "label" }, facts.classes ? brief(row.label) : number(row.label))),
    entry("predicted", facts.classes ? h("span", { class: `badge ${right ? "good" : "bad"}` }, `${brief(row.predicted)}, ${right ? "right" : "wrong"}`) : number(row.prediction)),
    facts.classes && likely && entry("probabilities", likely),
    entry(facts.loss.row, number(row[facts.loss.key]), facts.loss.key === "error" ? ` too ${row.prediction > row.label ? "high" : "low"}` : ""));
}
