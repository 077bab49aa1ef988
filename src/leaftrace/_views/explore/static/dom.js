// Elements made from data. Text is only ever set as text: nothing here reads markup.

/** An element. Attributes that are functions are listeners; null ones are left out. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An element of SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

// A click is lost if its button is replaced between press and release, so what is pressed stays until it is released.
let pressed = null;
const waiting = new Map(); // children that come into an element after the release

function release() {
  if (!pressed) return;
  pressed = null;
  const late = [...waiting];
  waiting.clear();
  for (const [element, children] of late) replace(element, ...children);
}

const afterClick = () => setTimeout(release);
addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
addEventListener("pointermove", (event) => { if (!event.buttons) release(); }, true); // released outside of the page
for (const end of ["pointerup", "pointercancel", "change"]) addEventListener(end, afterClick, true);
addEventListener("blur", afterClick); // of the window alone: a press takes the focus from another element
addEventListener("keydown", (event) => { if (event.key === " ") pressed = event.target; }, true);
addEventListener("keyup", afterClick, true);

/** Put other children into an element, and give the focus back to the one that had it, by its `data-key`. */
export function replace(element, ...children) {
  waiting.delete(element);
  if (pressed && element.contains(pressed)) {
    waiting.set(element, children);
    return;
  }
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
  if (key) [...element.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus();
}

/** A list to choose from; `options` are [value, text]. */
export function choice(label, options, value, change, key) {
  const select = h("select", { "data-key": key, change: () => change(select.value) },
    options.map(([v, text]) => h("option", { value: v }, text)));
  select.value = value;
  return h("label", {}, `${label} `, select);
}

/** Offer a text as a file. */
export function save(text, name, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Show an error in words, or clear it. */
export function problem(error) {
  const place = document.querySelector("#problem");
  place.hidden = !error;
  place.textContent = error ? error.message : "";
}
