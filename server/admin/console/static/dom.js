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

// Puts new children into an element. Whoever had the focus there and has the same data-key now keeps it.
export function refill(element, ...children) {
  const active = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  element.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  if (active !== undefined) {
    for (const each of element.querySelectorAll("[data-key]")) if (each.dataset.key === active) each.focus({ preventScroll: true });
  }
}

// Calls `work` now and again, until the signal ends it; a page that nobody sees asks nothing.
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

// Text as nodes in which characters are seen that would be unseen, or would turn the text around.
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

export function table(label, columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {},
      h("caption", { class: "unseen" }, label),
      h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind || null }, name)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, index) =>
        h(index ? "td" : "th", { class: columns[index][1] || null, scope: index ? null : "row" }, cell)))))));
}

export const facts = (...pairs) => h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const empty = (title, ...rest) => h("div", { class: "empty" }, h("strong", {}, title), rest);

export const field = (id, title, control) => { control.id = id; return h("label", { for: id }, title, control); };

// Buttons to the page before and to the next one. `pages` has where each page begins; `turned` takes the step and shows the page.
export function turns(pages, next, more, turned) {
  const turn = (title, isThere, step) => isThere && h("button", { "data-key": title, onclick: () => turned(step) }, title);
  return h("div", { class: "bar" }, turn("Previous", pages.length > 1, () => pages.pop()), turn(more, next, () => pages.push(next)));
}

// For who hears the name of a control without what stands around it.
export function named(element, name) { element.setAttribute("aria-label", name); return element; }

// What a search found, for who does not see the list change.
export const unseenStatus = () => h("p", { class: "unseen", role: "status" });

export const link = (text, ...path) => h("a", { href: "#/" + path.map(encodeURIComponent).join("/"), "data-key": path.join("/") }, text);
