// Groups: a heat map of training groups and test slices; a click puts a group into the basket.
import { ask } from "./api.js";
import { choice, h, problem, replace } from "./dom.js";
import { brief, count, number, signed } from "./format.js";
import { state, update, when } from "./state.js";

export function showGroups(root, facts) {
  const tools = h("div", { class: "bar-tools" });
  const map = h("div", {});
  root.append(tools, map);
  let open = true;
  const load = async () => {
    if (!open) return;
    const by = state.by ?? facts.group_columns[0];
    const columns = facts.group_columns.map((name) => [name, name === "(label)" ? "label" : brief(name)]);
    replace(tools, choice("Groups by", columns, by, (value) => update({ by: value }), "by"),
      choice("test rows by", [["", "all together"], ...columns.slice(1)], state.slices ?? "", (value) => update({ slices: value || null }), "slices"),
      choice("computed by", [["first", "first order"], ["refit", "refit (slower)"]], state.refit ? "refit" : "first", (value) => update({ refit: value === "refit" }), "way"));
    map.setAttribute("aria-busy", "true");
    try {
      const answer = await ask("groups", { by, slices: state.slices, refit: state.refit });
      if (answer !== null && open) replace(map, heat(answer, facts.loss.mean));
      if (answer !== null) problem(null);
    } catch (error) {
      map.replaceChildren();
      problem(error);
    }
    map.removeAttribute("aria-busy");
  };
  when(["by", "slices", "refit"], load);
  load();
  return () => { open = false; };
}

/** The table of groups; `loss` is the name of the mean loss. */
function heat(answer, loss) {
  const strength = (x) => (answer.largest > 0 && Math.abs(x) > answer.largest / 2 ? "w2" : answer.largest > 0 && Math.abs(x) > answer.largest / 10 ? "w1" : "");
  const put = (group) => update({ basket: [...state.basket, { group: { by: answer.by, number: group.number }, do: "remove" }] });
  const cell = (group, x, slice) => h("td", { class: `n ${x === null ? "" : x < 0 ? "up" : "down"} ${x === null ? "" : strength(x)}` }, h("button", {
    type: "button", class: "cell", "data-key": `${group.number} ${slice.name}`, "aria-label": `put ${group.name} into the basket; without it the ${loss} of ${slice.name} changes by ${signed(x)}`,
    click: () => put(group),
  }, signed(x)));
  const left = [answer.left_out && `${count(answer.left_out, "group")} with smaller effects`, answer.slices_left_out && `${count(answer.slices_left_out, "smaller slice")}`].filter(Boolean).join(" and ");
  return [
    h("p", { class: "legend" }, `Change of the ${loss} without each group, `, h("b", {}, answer.level), answer.level === "first order" ? " (a poor estimate for large groups)" : " (trees fixed)",
      ". ", h("span", { class: "up" }, "\u2212"), ` the group is harmful: the ${loss} falls without it. `, h("span", { class: "down" }, "+"), " it is helpful. Choose a cell to put its group into the basket."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Groups and slices" }, h("table", { class: "heat", id: "groups-table" },
      h("caption", { class: "unseen" }, `Change of the ${loss} of each slice without each group`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "without group"), h("th", { scope: "col", class: "n" }, "rows"),
        answer.slices.map((slice) => h("th", { scope: "col", class: "n", title: slice.name }, brief(slice.name), h("br"), h("span", { class: "quiet" }, `${count(slice.rows, "test row")}, ${loss} ${number(slice.before, 3)}`))))),
      h("tbody", {}, answer.groups.map((group) => h("tr", {}, h("th", { scope: "row", title: group.name }, brief(group.name)), h("td", { class: "n" }, number(group.rows)),
        group.changes.map((x, j) => cell(group, x, answer.slices[j]))))))),
    left ? h("p", { class: "quiet" }, `Not shown: ${left}.`) : null,
  ];
}
