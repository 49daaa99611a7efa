// Subjects of the schema registry, and one subject with its versions, its compatibility level and a form for the next version.

import { get, post, replacing } from "./api.js";
import { choice, count, empty, facts, field, fold, h, heading, input, link, many, refill, table, turns, unseenStatus, visible } from "./dom.js";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];
const TYPES = ["AVRO", "JSON", "PROTOBUF"];
const SHOWN = 50;

export async function showSubjects(view) {
  const wanted = input({ type: "search" });
  const list = h("div"), said = unseenStatus(), pages = [0], next = replacing(view.signal);
  refill(view.main, h("h1", {}, "Schemas"), h("p", { class: "lead" }, "A subject has the versions of one schema. By default it is named after a topic, and “-key” or “-value”."),
    h("div", { class: "bar" }, field("prefix", "Name begins with", wanted)), said, list, view.state.overview.canWrite && newSubject(view));
  const look = () => view.tried(async () => {
    const found = await get("subjects", { prefix: wanted.value, from: pages.at(-1) }, next());
    refill(list, found.subjects.length ? table("Subjects", [["Subject"]], found.subjects.map((name) => [link(name, "subject", name)])) : nothing(wanted.value),
      turns(pages, found.next, "More subjects", turned));
    refill(said, `${many(found.subjects.length, "subject")} listed`);
  });
  const turned = (step) => { step(); return look(); };
  wanted.addEventListener("input", () => turned(() => pages.splice(1)));
  await look();
}

function nothing(prefix) {
  return prefix ? empty("No such subject", h("p", {}, `No name here begins with “${prefix}”.`)) : empty("No subjects yet", h("p", {}, "One appears when a serializer registers its first schema."));
}

function newSubject(view) {
  const name = input({ required: true });
  return form(view, "Register a schema", { type: "AVRO", text: "", references: [] }, field("subject", "Subject", name), () => name.value, (done) => { location.hash = "#/subject/" + encodeURIComponent(done.subject); });
}

export async function showSubject(view) {
  const [name, version] = view.parameters;
  const found = await get("subject", { name }, view.signal);
  const chosen = version ? Number(version) : found.versions.at(-1);
  const shown = chosen === undefined ? null : await get("schema", { subject: name, version: chosen }, view.signal);
  const again = () => view.tried(() => showSubject(view));
  const canWrite = view.state.overview.canWrite;
  refill(view.main, heading(name), facts(["Compatibility", found.level + (found.isOwnLevel ? "" : " (of all subjects)")], ["Mode", found.mode], ["Versions", count(found.versionCount)]),
    h("p", {}, "Versions: ", found.versions.slice(-SHOWN).flatMap((each) => [each === chosen ? h("strong", {}, String(each)) : link(String(each), "subject", name, String(each)), " "])),
    shown && oneVersion(shown), canWrite && h("div", {}, level(view, found, again), form(view, "Register the next version", shown, null, () => name, again), shown && deletion(view, shown)));
}

function oneVersion(shown) {
  return h("section", { "aria-label": `Version ${shown.version}` }, h("p", { class: "soft" }, `Version ${shown.version} · id ${shown.id} · ${shown.type}`),
    h("pre", { class: "schema" }, visible(laidOut(shown))),
    shown.references.length > 0 && table("References", [["Name"], ["Subject"], ["Version", "number"]], shown.references.map((each) => [String(each.name), link(String(each.subject), "subject", String(each.subject), String(each.version)), String(each.version)])));
}

// JSON in lines, if nothing is lost: a number that JavaScript cannot hold would come back as another one.
function laidOut({ type, text }) {
  if (type === "PROTOBUF") return text;
  try {
    const value = JSON.parse(text);
    return JSON.stringify(value) === text ? JSON.stringify(value, null, 2) : text;
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}

function level(view, found, again) {
  const levels = choice(LEVELS, found.level), set = (value) => view.tried(async () => { await post("level", { subject: found.name, level: value }); await again(); });
  return h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); set(levels.value); } }, field("level", "Compatibility", levels), h("button", { class: "main" }, "Set"),
    h("button", { type: "button", onclick: () => set(null) }, "As all subjects"));
}

function form(view, title, start, more, subject, then) {
  const given = start || { type: "AVRO", text: "", references: [] };
  const type = choice(TYPES, given.type), text = h("textarea", { spellcheck: "false", rows: "12", required: true });
  const references = h("textarea", { spellcheck: "false", rows: "2" }), said = h("p", { role: "status" });
  text.value = laidOut(given);
  references.value = given.references.length ? JSON.stringify(given.references) : "";
  const body = () => ({ subject: subject(), type: type.value, text: text.value, references: references.value.trim() ? parsed(references.value) : [] });
  const check = () => view.tried(async () => {
    const found = await post("check-schema", body());
    refill(said, found.isCompatible ? "It fits the latest version, as the compatibility level asks." : ["It does not fit: ", h("pre", {}, visible(found.messages.join("\n")))]);
  });
  const submit = (event) => {
    event.preventDefault();
    return view.tried(async () => {
      const done = await post("register-schema", body());
      refill(said, `Registered: version ${done.version}, id ${done.id}.`);
      await then(done);
    });
  };
  return fold(title, {},
    h("form", { class: "fields", onsubmit: submit }, more, field("schema-text", "Schema", text), field("references", "References, as the registry's list in JSON, none if empty", references),
      h("div", { class: "bar" }, field("schema-type", "Type", type), h("button", { type: "button", onclick: check }, "Check"), h("button", { class: "main" }, "Register")), said));
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return text; }  // which the broker refuses with a sentence
}

function deletion(view, shown) {
  const remove = (version, question) => confirm(question) && view.tried(async () => {
    await post("delete-schema", { subject: shown.subject, version });
    location.hash = "#/schemas";
  });
  return h("p", { class: "bar" },
    h("button", { type: "button", onclick: () => remove(shown.version, `Delete version ${shown.version} of ${shown.subject}? Its id stays readable.`) }, `Delete version ${shown.version}`),
    h("button", { type: "button", onclick: () => remove(null, `Delete all versions of ${shown.subject}? Their ids stay readable.`) }, "Delete all versions"));
}
