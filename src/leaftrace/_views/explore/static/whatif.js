// What if: the chosen row with other values; prediction and influence follow.
import { ask } from "./api.js";
import { sideBySide } from "./behind.js";
import { card, inWords, whenBehind } from "./chosen.js";
import { h, problem, replace } from "./dom.js";
import { brief, number, signed } from "./format.js";
import { state } from "./state.js";

export function showWhatIf(root, facts) {
  const { key, row: loss } = facts.loss;
  let edits = {};
  let original = null;
  const form = h("div", { class: "fields" });
  const result = h("div", { "aria-live": "polite" });
  root.append(h("p", { class: "legend" }, "Change values of the chosen row: the prediction and the training rows behind it follow at once. An empty number is a missing value."), form, result);
  const load = async () => {
    if (!Object.keys(edits).length) { result.replaceChildren(); return; }
    try {
      const answer = await ask("row", { position: state.row, top: 5, edits }, "what if");
      if (answer === null) return;
      const changed = "prediction" in answer ? `prediction ${signed(answer.prediction - original.prediction)}` : `${loss} ${signed(answer[key] - original[key])}`;
      replace(result, h("p", { class: "note", id: "edited" }, `Before: ${inWords(original, original.label)}, ${loss} ${number(original[key])}. Edited: `, h("b", {}, inWords(answer, answer.label)), `, ${loss} ${number(answer[key])} (${changed}).`),
        card(answer, facts), answer.missing ? h("p", {}, answer.missing) : sideBySide(answer, facts, null));
      problem(null);
    } catch (error) { problem(error); }
  };
  const field = (name, value) => {
    const numeric = typeof value === "number" || value === null;
    const input = h("input", {
      type: typeof value === "number" ? "number" : "text", step: "any", value: value === null ? "" : String(value), "data-key": `edit ${name}`,
      change: () => {
        if (input.value === (value === null ? "" : String(value))) delete edits[name];
        else edits[name] = input.value === "" ? null : numeric && input.value.trim() !== "" && !Number.isNaN(Number(input.value)) ? Number(input.value) : input.value;
        load();
      },
    });
    return h("label", { title: name }, brief(name), input);
  };
  return whenBehind((answer) => {
    original = answer;
    edits = {};
    replace(form, answer.columns.map((name, j) => field(name, answer.values[j])));
    result.replaceChildren();
  });
}
