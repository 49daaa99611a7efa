// Settings with what they mean.

import { get } from "./api.js";
import { change as changed } from "./change.js";
import { age, bytes, dotted, empty, h, heading, input, many, refill } from "./dom.js";

export async function showSettings(view) {
  const [kind = "broker", name] = view.parameters;
  let found = await get("settings", { kind, name }, view.signal);
  const question = (each, text) => (text === null ? `Set ${each.name} back to its default?` : `Set ${each.name} to ${each.isSensitive ? "what was typed" : `“${text}”`}?`);
  const change = (each, text) => changed(view, "alter", { kind, name, setting: each.name, value: text }, question(each, text), async () => {
    found = await get("settings", { kind, name }, view.signal);
    draw();
  });
  const edit = view.state.overview.canWrite ? change : null;
  const wanted = input({ type: "search", id: "contains" });
  const onlyChanged = h("input", { type: "checkbox", id: "changed" });
  const said = h("p", { class: "soft", role: "status" }), list = h("div");
  const title = kind === "broker" ? `Settings of broker ${found.name}` : `Settings of ${kind} ${found.name}`;
  refill(view.main, heading(title), h("div", { class: "bar" }, h("label", { for: "contains" }, "Name or meaning contains", wanted),
    h("label", { for: "changed", class: "choice" }, onlyChanged, "Only changed")), said, list);
  const draw = () => {
    const text = wanted.value.toLowerCase();
    const shown = found.settings.filter((each) => (!onlyChanged.checked || !each.isDefault) && (each.name + " " + each.documentation).toLowerCase().includes(text));
    refill(said, many(shown.length, "setting"));
    refill(list, shown.length ? shown.map((each) => entry(each, edit)) : empty("No such setting"));
  };
  wanted.addEventListener("input", draw);
  onlyChanged.addEventListener("change", draw);
  draw();
}

const value = (each) => (each.isSensitive ? "hidden" : each.value === null ? "not set" : each.value === "" ? "empty" : each.value + spelled(each));

// What a number of milliseconds or bytes is in larger units, if it is that large.
function spelled({ name, value: text }) {
  const number = Number(text);
  if (name.endsWith(".ms") && number >= 60_000 && number < 1e15) return ` (${age(number)})`;
  return name.endsWith(".bytes") && number >= 1024 && number < 1e15 ? ` (${bytes(number)})` : "";
}

function entry(each, edit) {
  return h("details", { class: "setting", "data-key": each.name },
    h("summary", {}, h("span", { class: each.isDefault ? "mono" : "mono changed" }, dotted(each.name)), h("span", { class: "mono value" }, value(each)),
      h("span", { class: "soft" }, each.hasEffect ? each.source : "without effect")),
    h("p", {}, each.documentation || "Apache Kafka documents it."),
    h("p", { class: "soft" }, [each.type, each.isReadOnly ? "changed by a restart" : "can be changed at run time", each.hasEffect ? "" : "accepted, but it has no effect here"].filter(Boolean).join(" · ")),
    edit && !each.isReadOnly && editor(each, edit));
}

function editor(each, edit) {
  const id = "set-" + each.name;
  const control = input({ id, value: each.isSensitive ? "" : each.value ?? "", type: each.isSensitive ? "password" : "text" });
  return h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); edit(each, control.value); } },
    h("label", { for: id }, `New value of ${each.name}`, control), h("button", { class: "main" }, "Set"),
    h("button", { type: "button", onclick: () => edit(each, null) }, "Back to the default"));
}
