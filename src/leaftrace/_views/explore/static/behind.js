// Training rows behind the chosen test row, harmful and helpful, side by side with it.
import { choice, h, replace, svg } from "./dom.js";
import { brief, number, signed } from "./format.js";
import { whenBehind } from "./chosen.js";
import { inBasket, whenBasket } from "./basket.js";
import { state, update, withRows } from "./state.js";

const MARKS = { "=": "s", "~": "m", ">": "h", "<": "l", "!": "o" };

export function showBehind(root, facts) {
  let answer = null;
  const show = () => answer && replace(root, content(answer, facts));
  const ends = [whenBehind((found) => { answer = found; inBasket.watch(found.training_rows.map((r) => r.position)); show(); }), whenBasket(show)];
  return () => ends.forEach((end) => end());
}

function content(answer, facts) {
  if (answer.missing) return h("p", { class: "note" }, answer.missing);
  const harmful = answer.training_rows.filter((row) => row.effect === "harmful").map((row) => row.position);
  return [
    h("div", { class: "bar-tools" },
      !facts.frozen && choice("Rows of each side", [5, 10, 20, 50].map((k) => [String(k), String(k)]), String(state.top), (k) => update({ top: Number(k) }), "top"),
      h("button", { type: "button", "data-key": "all harmful", click: () => update({ basket: withRows(harmful, { do: "remove" }) }) }, `Remove the ${harmful.length} harmful rows`)),
    h("p", { class: "legend" }, h("span", { class: "up" }, "harmful"), ` rows raise the ${facts.loss.row} of the chosen row, `, h("span", { class: "down" }, "helpful"),
      ` ones lower it. The change is for removing one row alone, ${answer.change_is}; the basket shows what all changes do together.`),
    sideBySide(answer, facts, (row) => actions(row, facts)),
  ];
}

/** The table of training rows with the values of the test row on top. `extra` makes the cells of a line to change the row: a tick box and a list. */
export function sideBySide(answer, facts, extra) {
  const largest = Math.max(...answer.training_rows.map((row) => Math.abs(row.change)), 0);
  const numeric = answer.columns.map((_, j) => [answer.values, ...answer.training_rows.map((r) => r.values)].some((v) => typeof v[j] === "number"));
  const cell = (value, j, mark = "") => h("td", {
    class: `${numeric[j] ? "n" : ""} ${value === null ? "none" : ""} ${mark}`, title: typeof value === "string" && value.length > 28 ? value : null,
  }, brief(value));
  const line = (row) => {
    const [tick, list] = extra ? extra(row) : [];
    return h("tr", { class: row.effect === "harmful" ? "up" : "down", "data-position": row.position },
      h("th", { scope: "row", title: row.row }, brief(row.row)), tick,
      h("td", { class: "label" }, facts.classes ? brief(row.label) : number(row.label)),
      h("td", { class: "effect" }, row.effect), h("td", { class: "change n" }, signed(row.change), bar(row.change, largest)),
      list, row.values.map((value, j) => cell(value, j, MARKS[row.marks[j]])));
  };
  const lists = extra && !facts.frozen;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Training rows behind the chosen row" }, h("table", {},
    h("caption", { class: "unseen" }, "Training rows behind the chosen row"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "training row"), extra && h("th", { scope: "col" }, "remove"),
      h("th", { scope: "col" }, "label"), h("th", { scope: "col" }, "effect"), h("th", { scope: "col", class: "n" }, `${facts.loss.row} change without it`), lists && h("th", { scope: "col" }, "or change"),
      answer.columns.map((name, j) => h("th", { scope: "col", class: numeric[j] ? "n" : "", title: name }, brief(name)))),
    h("tr", { class: "self" }, h("th", { scope: "row", title: answer.row }, `${brief(answer.row)} (test)`), extra && h("td", {}), h("td", {}, facts.classes ? brief(answer.label) : number(answer.label)),
      h("td", {}), h("td", {}), lists && h("td", {}), answer.values.map((value, j) => cell(value, j)))),
    h("tbody", {}, answer.training_rows.map(line))));
}

function bar(change, largest) {
  const share = largest > 0 ? 50 * Math.abs(change) / largest : 0;
  return svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { x1: 50, x2: 50, y1: 0, y2: 10 }), svg("rect", { x: change < 0 ? 50 - share : 50, y: 1, width: Math.max(share, 0.5), height: 8 }));
}

/** A box to remove a training row, and a list of other changes. */
export function actions(row, facts) {
  const now = inBasket.action(row.position);
  const foreign = now?.from === "other"; // by a group or a region
  const set = (action) => update({ basket: withRows([row.position], action) });
  const box = h("input", {
    type: "checkbox", "aria-label": `remove training row ${row.row}`, "data-key": `remove ${row.position}`, disabled: foreign,
    change: (event) => set(event.target.checked ? { do: "remove" } : null),
  });
  box.checked = now?.do === "remove";
  const labels = (facts.classes ?? []).map((name, i) => [`relabel ${i}`, `label ${brief(name)}`]).filter((_, i) => facts.classes[i] !== row.label);
  const options = [["", "\u2013"], ...labels, ...(facts.classes ? [] : [["relabel", "another label"]]), ["weight 0.5", "weight \u00d7 0.5"], ["weight 2", "weight \u00d7 2"], ["weight 5", "weight \u00d7 5"]];
  const value = now && now.do !== "remove" ? `${now.do}${facts.classes || now.do !== "relabel" ? ` ${now.to}` : ""}` : "";
  const select = h("select", { "aria-label": `other changes of training row ${row.row}`, "data-key": `change ${row.position}`, disabled: foreign, change: () => {
    const [action, to] = select.value.split(" ");
    if (!action) set(null);
    else if (to === undefined) set({ do: action, to: typeof row.label === "number" ? row.label : 0 });
    else set({ do: action, to: Number(to) });
  } }, options.map(([v, text]) => h("option", { value: v }, text)));
  select.value = value;
  const typed = now?.do === "relabel" && !facts.classes && h("input", {
    type: "number", step: "any", class: "short", value: String(now.to), "aria-label": `new label of training row ${row.row}`, "data-key": `label ${row.position}`,
    change: (event) => event.target.value !== "" && set({ do: "relabel", to: Number(event.target.value) }),
  });
  return [h("td", { class: "tick" }, box), !facts.frozen && h("td", {}, select, typed)];
}
