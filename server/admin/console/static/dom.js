// Elements out of text. What comes from the broker becomes text nodes here, and never markup.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  apply(element, props);
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function apply(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

// Replaces the children of an element. Those with the same data-key as before stay focused, open and scrolled sideways.
export function refill(element, ...children) {
  const active = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const kept = [...element.querySelectorAll("[data-key]")].filter((each) => each.scrollLeft || each.open).map((each) => [each.dataset.key, each.scrollLeft, each.open]);
  element.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  if (active === undefined && !kept.length) return;
  const byKey = new Map([...element.querySelectorAll("[data-key]")].map((each) => [each.dataset.key, each]));
  for (const [key, left, open] of kept) {
    const found = byKey.get(key);
    if (found && open) found.open = true;
    if (found) found.scrollLeft = left;
  }
  byKey.get(active)?.focus({ preventScroll: true });
}

// Makes a function that tells whether an answer differs from the last one. While text in `element` is selected, it says no.
export function changes(element) {
  let before = "";
  return (answer) => {
    const text = JSON.stringify(answer), selection = getSelection();
    if (text === before || (!selection.isCollapsed && element.contains(selection.anchorNode))) return false;
    before = text;
    return true;
  };
}

// A name that breaks behind its dots, dashes and underscores, if it has to break.
export const dotted = (name) => name.split(/(?<=[._-])(?=[^._-])/).flatMap((each, index) => (index ? [h("wbr"), each] : [each]));

// Calls `work` at once and then periodically, until the signal aborts. While the page is hidden, it calls nothing.
export async function every(milliseconds, signal, work) {
  while (!signal.aborted) {
    if (!document.hidden) await work();
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
    });
  }
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

const NAMES = "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");

// Makes nodes of a text. Characters that are invisible, or change the direction of text, are replaced by their names.
export function visible(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    const code = match[0].charCodeAt(0);
    nodes.push(h("span", { class: "shown" }, NAMES[code] || "U+" + code.toString(16).toUpperCase().padStart(4, "0")));
    end = match.index + match[0].length;
  }
  nodes.push(text.slice(end));
  return nodes;
}

const grouped = new Intl.NumberFormat("en");
export const count = (number) => grouped.format(number);

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return `${unit && number < 10 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

export function time(milliseconds) {
  if (milliseconds < 0) return "no time";
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return String(milliseconds);
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  return `${pad(date.getFullYear(), 4)}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ` +
    `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export const many = (number, noun, nouns = noun + "s") => `${count(number)} ${number === 1 ? noun : nouns}`;

export function age(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  const both = (one, unit, other, part) => (other ? `${one} ${unit} ${other} ${part}` : `${one} ${unit}`);
  if (seconds < 3600) return both(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const hours = Math.floor(seconds / 3600);
  if (hours < 24) return both(hours, "h", Math.floor(seconds / 60) % 60, "min");
  return both(Math.floor(hours / 24), hours < 48 ? "day" : "days", hours % 24, "h");
}

// On a phone a row is a block in which each cell has its column's name. A table that is shown so has to say its roles itself.
export function table(label, columns, rows) {
  const cell = (content, index) => h(index ? "td" : "th", { class: columns[index][1] || null, scope: index ? null : "row", role: index ? "cell" : "rowheader", "data-label": columns[index][0] }, content);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, "data-key": `table ${label}` },
    h("table", { role: "table" },
      h("caption", { class: "unseen" }, label),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([name, kind]) => h("th", { scope: "col", role: "columnheader", class: kind || null }, name)))),
      h("tbody", { role: "rowgroup" }, rows.map((cells) => h("tr", { role: "row" }, cells.map(cell))))));
}

export const facts = (...pairs) => h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const empty = (title, ...rest) => h("div", { class: "empty" }, h("strong", {}, title), rest);

// An input that the browser neither completes nor corrects.
export const input = (more = {}) => h("input", { autocomplete: "off", spellcheck: "false", ...more });

// A select element. Each value is its own text, or a pair of value and text.
export const choice = (values, chosen = null) => h("select", {}, values.map((each) => {
  const [value, text] = Array.isArray(each) ? each : [each, each];
  return h("option", { value, selected: value === chosen }, text);
}));

// A part of a page that stays closed until somebody opens it by its title.
export const fold = (title, props, ...children) => h("details", { class: "setting", ...props }, h("summary", {}, h("span", {}, title)), children);

export const field = (id, title, control) => { control.id = id; return h("label", { for: id }, title, control); };

// Buttons to the page before and to the next one. `pages` has where each page begins; `turned` takes the step and shows the page.
export function turns(pages, next, more, turned) {
  const turn = (title, isThere, step) => isThere && h("button", { "data-key": title, onclick: () => turned(step) }, title);
  return h("div", { class: "bar" }, turn("Previous", pages.length > 1, () => pages.pop()), turn(more, next, () => pages.push(next)));
}

// Names an element for screen readers, which may read it without the text around it.
export function named(element, name) { element.setAttribute("aria-label", name); return element; }

// Makes a status line for screen readers alone, such as for the number of items that a search found.
export const unseenStatus = () => h("p", { class: "unseen", role: "status" });

export const link = (text, ...path) => h("a", { href: "#/" + path.map(encodeURIComponent).join("/"), "data-key": path.join("/"), "aria-label": text }, dotted(text));

// A heading with a name in it. A screen reader would hear a space at each place where the name may break.
export const heading = (text) => h("h1", { "aria-label": text }, dotted(text));
