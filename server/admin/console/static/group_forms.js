// Forms that reset and delete a group.

import { change } from "./change.js";
import { field, h } from "./dom.js";

const input = (more = {}) => h("input", { autocomplete: "off", spellcheck: "false", ...more });

export function groupForms(view, type, id) {
  const to = h("select", {}, [["earliest", "the first record"], ["latest", "the end"], ["offset", "an offset"], ["time", "a time"]].map(([value, text]) => h("option", { value }, text)));
  const topic = input(type === "share" ? { required: true } : { placeholder: "all that it has committed" }), partition = input({ type: "number", min: "0", placeholder: "all" });
  const offset = input({ type: "number", min: "0", value: "0" }), time = input({ type: "datetime-local", step: "1" });
  const ofOffset = field("reset-offset", "Offset", offset), ofTime = field("reset-time", "Time", time);
  const arrange = () => { ofOffset.hidden = to.value !== "offset"; ofTime.hidden = to.value !== "time"; };
  const value = () => (to.value === "offset" ? Number(offset.value) : to.value === "time" ? new Date(time.value || 0).getTime() : null);
  const reset = (event) => {
    event.preventDefault();
    const body = { id, type, topic: topic.value || null, partition: topic.value && partition.value !== "" ? Number(partition.value) : null, to: to.value, value: value() };
    return change(view, "reset-group", body, `Let the group ${id} go on from ${to.selectedOptions[0].textContent}${body.topic ? ` of ${body.topic}` : ""}? What it has committed is replaced.`);
  };
  const remove = () => change(view, "delete-group", { id }, `Delete the group ${id} with all that it has committed?`, () => { location.hash = "#/groups"; });
  to.addEventListener("change", arrange);
  arrange();
  return h("details", { class: "setting", id: "change-group" }, h("summary", {}, h("span", {}, "Change this group")),
    h("p", { class: "soft" }, "Only a group without members can be changed."),
    h("form", { class: "bar", onsubmit: reset }, field("reset-topic", "Topic", topic), field("reset-partition", "Partition", partition), field("reset-to", "Go on from", to), ofOffset, ofTime, h("button", {}, "Reset")),
    h("div", { class: "bar" }, h("button", { type: "button", class: "danger", onclick: remove }, "Delete this group")));
}
