// Lists of names with a search field. The list is requested page by page, and repeatedly.

import { get, replacing } from "./api.js";
import { changes, field, h, input, many, refill, turns, unseenStatus } from "./dom.js";

const PERIOD_MS = 2000;

// Makes a list with its search field. `name`: path of the request, and the member of the answer that has the items. `label`: text before
// "contains" at the search field. `show`: makes elements from items and the searched text. `choices`: other controls that `show` reads.
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
