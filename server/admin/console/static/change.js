// Changes: a question before each one, and afterwards a message with the command that does the same.

import { post } from "./api.js";
import { h, refill } from "./dom.js";

const SHOWN_MS = 1500;
const place = document.getElementById("done");
let toldAt = 0;

// Asks a question and changes something, if the answer is yes. `then` shows the view as it is now.
export async function change(view, name, body, question, then = null) {
  if (!confirm(question)) return;
  await view.tried(async () => {
    const told = await post(name, body);
    toldAt = Date.now();
    refill(place, h("p", {}, told.done, " ", h("span", { class: "soft" }, "The same by a command:")), h("pre", {}, told.command),
      h("button", { type: "button", class: "plain", onclick: () => refill(place) }, "Close"));
    await then?.(told);
  });
}

// Removes the message when another view is opened. It stays if the change itself has just opened that view.
export function forgetChange() { if (Date.now() - toldAt > SHOWN_MS) refill(place); }
