// Settings with what they mean.

import { get } from "./api.js";
import { empty, h, many, refill } from "./dom.js";

export async function showSettings(view) {
  const [kind = "broker", name] = view.parameters;
  const found = await get("settings", { kind, name }, view.signal);
  const wanted = h("input", { type: "search", id: "contains", autocomplete: "off", spellcheck: "false" });
  const changed = h("input", { type: "checkbox", id: "changed" });
  const said = h("p", { class: "soft", role: "status" }), list = h("div");
  const title = kind === "broker" ? `Settings of broker ${found.name}` : `Settings of ${kind} ${found.name}`;
  refill(view.main, h("h1", {}, title), h("div", { class: "bar" }, h("label", { for: "contains" }, "Name or meaning contains", wanted),
    h("label", { for: "changed", class: "choice" }, changed, "Only what is not as by default")), said, list);
  const draw = () => {
    const text = wanted.value.toLowerCase();
    const shown = found.settings.filter((each) => (!changed.checked || !each.isDefault) && (each.name + " " + each.documentation).toLowerCase().includes(text));
    refill(said, many(shown.length, "setting"));
    refill(list, shown.length ? shown.map((each) => entry(each)) : empty("No such setting"));
  };
  wanted.addEventListener("input", draw);
  changed.addEventListener("change", draw);
  draw();
}

const value = (each) => (each.isSensitive ? "hidden" : each.value === null ? "not set" : each.value === "" ? "empty" : each.value);

function entry(each) {
  return h("details", { class: "setting" },
    h("summary", {}, h("span", { class: each.isDefault ? "mono" : "mono changed" }, each.name), h("span", { class: "mono value" }, value(each)),
      h("span", { class: "soft" }, each.hasEffect ? each.source : "without effect")),
    h("p", {}, each.documentation || "Apache Kafka documents it."),
    h("p", { class: "soft" }, [each.type, each.isReadOnly ? "changed by a restart" : "can be changed at run time", each.hasEffect ? "" : "accepted, but it has no effect here"].filter(Boolean).join(" · ")));
}
