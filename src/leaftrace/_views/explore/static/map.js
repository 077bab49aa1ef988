// A map of two columns: training rows sized by influence; a lasso, or a typed rectangle, puts a region into the basket.
import { ask } from "./api.js";
import { choice, h, problem, replace, svg } from "./dom.js";
import { brief, number, signed } from "./format.js";
import { state, update, when } from "./state.js";

const [WIDE, HIGH, EDGE] = [720, 420, 46];

export function showMap(root, facts) {
  const tools = h("div", { class: "bar-tools" });
  const place = h("div", {});
  root.append(tools, place);
  let open = true;
  const load = async () => {
    if (!open) return;
    const [x, y] = [state.x ?? facts.columns[0], state.y ?? facts.columns[Math.min(1, facts.columns.length - 1)]];
    const columns = facts.columns.map((name) => [name, brief(name)]);
    replace(tools, choice("across", columns, x, (value) => update({ x: value }), "x"), choice("upwards", columns, y, (value) => update({ y: value }), "y"));
    try {
      const answer = await ask("map", { x, y, position: state.row });
      if (answer !== null && open) replace(place, picture(answer, facts.loss.row), rectangle(answer));
      if (answer !== null) problem(null);
    } catch (error) {
      place.replaceChildren();
      problem(error);
    }
  };
  when(["x", "y", "row"], load);
  load();
  return () => { open = false; };
}

const put = (answer, points) => update({ basket: [...state.basket, { region: { x: answer.x, y: answer.y, points }, do: "remove" }] });
const short = (x) => Number(x.toPrecision(5));

function scale(values, names, low, high) {
  const [from, to] = names ? [-0.5, names.length - 0.5] : [Math.min(...values), Math.max(...values)];
  const span = to > from ? to - from : 1;
  return { from, to, at: (v) => low + (high - low) * ((v - from) / span), back: (p) => from + span * ((p - low) / (high - low)) };
}

/** The map; `loss` is the name of a row's loss. */
function picture(answer, loss) {
  if (!answer.points.length) return h("p", { class: "note" }, "No training row has both values.");
  const x = scale(answer.points.map((p) => p[1]), answer.x_names, EDGE, WIDE - 10);
  const y = scale(answer.points.map((p) => p[2]), answer.y_names, HIGH - EDGE, 10);
  const largest = Math.max(...answer.points.map((p) => Math.abs(p[3])), 1e-300);
  const dots = answer.points.map(([, px, py, change], i) => svg("circle", {
    class: change < 0 ? "up" : change > 0 ? "down" : "", cx: x.at(px).toFixed(1), cy: y.at(py).toFixed(1), r: (1.5 + 7 * Math.sqrt(Math.abs(change) / largest)).toFixed(1),
  }, svg("title", {}, `${brief(answer.names[i])}, label ${brief(answer.labels[i])}: without it the ${loss} changes by ${signed(change)}`)));
  const ticks = (axis, names, across) => {
    const values = names ? names.map((_, i) => i) : [0, 0.25, 0.5, 0.75, 1].map((s) => axis.from + s * (axis.to - axis.from));
    const text = (v, i) => (names ? brief(names[i]).slice(0, 10) : number(v, 3));
    return values.map((v, i) => svg("text", across ? { x: axis.at(v), y: HIGH - EDGE + 18, "text-anchor": "middle" } : { x: EDGE - 6, y: axis.at(v) + 4, "text-anchor": "end" }, text(v, i)));
  };
  const lasso = svg("polyline", { class: "lasso", points: "" });
  const plot = svg("svg", { class: "map", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `Training rows by ${brief(answer.x)} and ${brief(answer.y)}. Drag around some to put the region into the basket, or type it below.` },
    svg("rect", { class: "ground", x: EDGE, y: 10, width: WIDE - 10 - EDGE, height: HIGH - EDGE - 10 }), dots, ticks(x, answer.x_names, true), ticks(y, answer.y_names, false), lasso);
  let drawn = null;
  const at = (event) => {
    const box = plot.getBoundingClientRect();
    return [(event.clientX - box.left) * (WIDE / box.width), (event.clientY - box.top) * (HIGH / box.height)];
  };
  plot.addEventListener("pointerdown", (event) => { drawn = [at(event)]; plot.setPointerCapture(event.pointerId); event.preventDefault(); });
  plot.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    const point = at(event);
    const [lastX, lastY] = drawn.at(-1);
    if (Math.hypot(point[0] - lastX, point[1] - lastY) > 4) drawn.push(point);
    lasso.setAttribute("points", drawn.map((p) => p.join(",")).join(" "));
  });
  plot.addEventListener("pointerup", () => {
    const points = drawn ?? [];
    drawn = null;
    lasso.setAttribute("points", "");
    if (points.length < 3) return;
    const step = Math.ceil(points.length / 60); // the address holds the region
    put(answer, points.filter((_, i) => i % step === 0).map(([px, py]) => [short(x.back(px)), short(y.back(py))]));
  });
  return [
    h("p", { class: "legend" }, `${number(answer.points.length)} of ${number(answer.training_rows)} training rows: the most influential and random ones. Large: the chosen row's ${loss} depends on it. `,
      h("span", { class: "up" }, "orange"), " rows harm the chosen row, ", h("span", { class: "down" }, "blue"), " ones help it. A region takes all training rows in it, shown or not."),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Map" }, plot),
  ];
}

function rectangle(answer) {
  if (answer.x_names || answer.y_names) return h("p", { class: "quiet" }, "Without a mouse: the panel Groups takes categories, and two columns of numbers can be typed here.");
  const box = (name) => h("input", { type: "number", step: "any", class: "short", "aria-label": name, "data-key": name });
  const inputs = [`${brief(answer.x)} from`, `${brief(answer.x)} to`, `${brief(answer.y)} from`, `${brief(answer.y)} to`].map((name) => [name, box(name)]);
  const add = () => {
    const [a, b, c, d] = inputs.map(([, input]) => (input.value === "" ? null : Number(input.value)));
    if ([a, b, c, d].includes(null)) return problem(new Error("Type all four sides of the rectangle."));
    put(answer, [[a, c], [b, c], [b, d], [a, d]]);
  };
  return h("div", { class: "bar-tools" }, inputs.map(([name, input]) => h("label", {}, `${name} `, input)), h("button", { type: "button", "data-key": "rectangle", click: add }, "Put this rectangle into the basket"));
}
