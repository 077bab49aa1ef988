// Label review by keyboard: k keep, w wrong, u unsure, arrows to move.
import { ask } from "./api.js";
import { file } from "./basket.js";
import { h, problem, replace } from "./dom.js";
import { brief, count, number, percent } from "./format.js";
import { state, update, when, withRows } from "./state.js";

const KEYS = { k: "keep", w: "wrong", u: "unsure" };
const PAGE = 50;

export function showReview(root, facts) {
  let open = true;
  let answer = null;
  let at = 0;
  let told = Promise.resolve();
  const show = (focus) => {
    if (!open || !answer) return;
    replace(root, content());
    if (focus) root.querySelector("#review-now").focus();
  };
  const load = async () => {
    if (!open) return;
    try {
      const found = await ask("review", { offset: state.page * PAGE });
      if (found === null) return;
      answer = found;
      at = 0;
      show(false);
      problem(null);
    } catch (error) { problem(error); }
  };
  const say = (verdict) => {
    const row = answer.training_rows[at];
    const before = row.verdict;
    row.verdict = before === verdict ? null : verdict;
    const question = { position: row.position, verdict: row.verdict };
    if (row.verdict) at = Math.min(at + 1, answer.training_rows.length - 1);
    show(true); // at once: fingers are faster than answers, which are waited for one after the other
    told = told.then(() => ask("verdict", question, "verdict")).then((noted) => {
      answer.reviewed = noted.reviewed;
      show(false);
    }).catch((error) => {
      row.verdict = before;
      show(false);
      problem(error);
    });
  };
  const move = (step) => {
    at = Math.min(Math.max(at + step, 0), answer.training_rows.length - 1);
    show(true);
  };
  const key = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1 }[event.key];
    if (step) move(step);
    else if (KEYS[event.key]) say(KEYS[event.key]);
    else return;
    event.preventDefault();
  };
  const wrong = () => answer.training_rows.filter((row) => row.verdict === "wrong").map((row) => row.position);
  const value = (x) => (typeof x === "number" ? number(x) : brief(x));

  function content() {
    const row = answer.training_rows[at];
    const line = (one, i) => h("tr", { class: i === at ? "chosen" : "", click: () => { at = i; show(true); } },
      h("th", { scope: "row", title: one.row }, brief(one.row)), h("td", {}, value(one.given_label)), h("td", {}, value(one.predicted_label)),
      h("td", { class: "n" }, percent(one.label_score)), h("td", {}, one.is_label_issue ? "flagged" : ""), h("td", {}, one.verdict ? h("b", {}, one.verdict) : ""),
      one.values.map((v) => h("td", { class: typeof v === "number" ? "n" : "" }, brief(v))));
    return [
      h("p", { class: "legend" }, `Training labels that surprise the model most, without the row's own pull. A surprising label is wrong, or right and rare. ${answer.flagged} are flagged. ${answer.note ?? ""}`),
      h("div", { class: "card review", id: "review-now", tabindex: "0", role: "group", "aria-label": `Row ${at + 1} of ${answer.training_rows.length}: keys k keep, w wrong, u unsure, arrows to move`, keydown: key, "data-key": "now" },
        h("div", {}, h("b", { class: "label" }, brief(row.row)), h("p", {}, "label ", h("b", {}, value(row.given_label)), ", the model says ", h("b", {}, value(row.predicted_label)))),
        h("div", { class: "bar-tools" }, Object.entries(KEYS).map(([letter, verdict]) => h("button", { type: "button", "data-key": verdict, "aria-pressed": String(row.verdict === verdict), click: () => say(verdict) }, `${verdict} (${letter})`)))),
      h("div", { class: "bar-tools" }, h("span", { role: "status" }, `${count(answer.reviewed, "label")} reviewed`),
        h("button", { type: "button", "data-key": "to basket", disabled: !wrong().length, click: () => update({ basket: withRows(wrong(), { do: "remove" }) }) }, "Remove the wrong ones"),
        facts.classes && h("button", { type: "button", "data-key": "relabel", disabled: !wrong().length, click: relabel }, "Relabel the wrong ones as predicted"),
        file("review_csv", "Save as CSV", "review.csv", "text/csv", !answer.reviewed),
        h("button", { type: "button", "data-key": "earlier", disabled: state.page === 0, click: () => update({ page: state.page - 1 }) }, "Back"),
        h("button", { type: "button", "data-key": "later", disabled: (state.page + 1) * PAGE >= answer.total, click: () => update({ page: state.page + 1 }) }, "Next")),
      h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Surprising labels" }, h("table", { class: "choose" },
        h("caption", { class: "unseen" }, "Surprising labels"),
        h("thead", {}, h("tr", {}, ["training row", "label", "model says"].map((t) => h("th", { scope: "col" }, t)), h("th", { scope: "col", class: "n" }, facts.classes ? "P(label)" : "as expected"), ["flag", "verdict"].map((t) => h("th", { scope: "col" }, t)),
          answer.columns.map((name, j) => h("th", { scope: "col", class: answer.training_rows.some((one) => typeof one.values[j] === "number") ? "n" : "", title: name }, brief(name))))),
        h("tbody", {}, answer.training_rows.map(line)))),
    ];
  }
  function relabel() {
    let basket = state.basket;
    for (const row of answer.training_rows.filter((one) => one.verdict === "wrong")) {
      const to = facts.classes.indexOf(row.predicted_label);
      if (to < 0 || row.predicted_label === row.given_label) continue;
      const same = basket.findIndex((item) => item.rows && item.do === "relabel" && item.to === to);
      basket = same < 0 ? [...basket, { rows: [row.position], do: "relabel", to }] : basket.map((item, i) => (i === same ? { ...item, rows: [...new Set([...item.rows, row.position])] } : item));
    }
    update({ basket });
  }
  when(["page"], load);
  load();
  return () => { open = false; };
}
