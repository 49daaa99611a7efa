// Lists of names with a search field, which are asked for page by page, and again and again.

import { get, replacing } from "./api.js";
import { changes, field, h, input, many, refill, turns, unseenStatus } from "./dom.js";

const PERIOD_MS = 2000;

// Makes a list of the items that the broker answers to a request of this name, and in a member of this name. `label`: before "contains" at
// the search field; `show`: makes elements of items and of the text that is searched for; `choices`: what else decides how items are shown.
export function searchedList({ signal, poll }, { name, noun, label, show, choices = () => null }) {
  const wanted = input({ type: "search" }), list = h("div", { "aria-live": "off" }), said = unseenStatus();
  const pages = [""], next = replacing(signal), isNew = changes(list);
  let asked = next();
  async function look() {
    const found = await get(name, { after: pages.at(-1), contains: wanted.value }, asked);
    if (isNew([found, choices(), pages])) {
      refill(list, show(found[name], wanted.value), turns(pages, found.next, `More ${noun}s`, (step) => turned(step).catch(() => {})));
    }
    return found[name].length;
  }
  const turned = (step) => { step(); asked = next(); return look(); };
  wanted.addEventListener("input", () => turned(() => pages.splice(1)).then((number) => refill(said, `${many(number, noun)} listed`)).catch(() => {}));
  return { search: field("contains", `${label} contains`, wanted), list, said, look, follow: () => poll(PERIOD_MS, look) };
}
