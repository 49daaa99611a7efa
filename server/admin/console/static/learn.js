// The Learn tab: one step at a time, on what the broker holds at this moment.

import { get, post, Refusal } from "./api.js";
import { changes, empty, h, many, refill } from "./dom.js";
import { LESSONS } from "./lessons.js";

const PERIOD_MS = 1000, RECORDS = 14, PARTITIONS = 3;
const NAMES = { "add-reader": "Add a reader", "remove-reader": "Remove a reader", "lose-reader": "Lose a reader" };

const word = (lesson) => lesson.title.toLowerCase().replaceAll(" ", "-");

export async function showLearn(view) {
  // Lessons of docs/course link to words, "#/learn/offset"; numbers are what older links have.
  const asked = view.parameters[0] || "1", named = LESSONS.findIndex((each) => word(each) === asked) + 1;
  const step = named || Math.min(Math.max(Number.parseInt(asked, 10) || 1, 1), LESSONS.length);
  const lesson = LESSONS[step - 1];
  const control = h("div", { class: "bar" }), text = h("div"), shown = h("div"), tries = h("div", { class: "bar" });
  const place = (number, title, key) => h("a", { href: `#/learn/${word(LESSONS[number - 1])}`, "data-key": key || title, "aria-current": number === step ? "step" : null }, title);
  refill(view.main, h("h1", {}, "Learn"), h("p", { class: "lead wide" }, "Kafka's words, one by one, shown on what this broker holds at this moment."), control,
    h("div", { class: "steps" }, h("nav", { "aria-label": "Steps" }, h("ol", {}, LESSONS.map((each, index) => h("li", {}, place(index + 1, each.title))))),
      h("section", { class: "lesson", "aria-labelledby": "lesson" }, h("h2", { id: "lesson" }, lesson.title), text,
        h("div", { class: "shown-here", "aria-live": "off" }, h("h3", {}, "Here and now"), shown), tries,
        h("div", { class: "bar" }, step > 1 && place(step - 1, `← ${LESSONS[step - 2].title}`, "back"), step < LESSONS.length && place(step + 1, `${LESSONS[step].title} →`, "on")))));
  // On a phone the steps stand in one line, which may be longer than the screen.
  const current = view.main.querySelector("ol [aria-current]");
  current.closest("ol").scrollLeft = current.offsetLeft - 60;
  const isNew = changes(shown);
  let said = "", taught = false;
  const act = (action) => view.tried(async () => { await post("load", { action }); await look(); });
  const button = (action, title, kind) => h("button", { type: "button", class: kind || null, "data-key": action, onclick: () => act(action) }, title);

  async function look() {
    const load = await get("load", {}, view.signal);
    const now = JSON.stringify([load.isRunning, load.mayStart, load.problem, load.readers.length, Math.ceil(load.secondsLeft / 60)]);
    if (now !== said) {
      said = now;
      refill(control, controls(load, button));
      refill(tries, load.isRunning && (lesson.tries || []).map((action) => button(action, NAMES[action])));
    }
    const data = await lookAt(load, view);
    if (data && !taught) { taught = true; refill(text, lesson.text(data)); }
    if (!isNew(data)) return;
    const isAtEnd = (tape) => tape.scrollLeft + tape.clientWidth >= tape.scrollWidth - 2;
    const left = new Set([...shown.querySelectorAll(".tape")].filter((each) => !isAtEnd(each)).map((each) => each.dataset.key));
    refill(shown, data ? lesson.show(data) : nothing(load));
    // The newest cells are those to watch, unless somebody has gone back to older ones.
    for (const each of shown.querySelectorAll(".tape")) if (!left.has(each.dataset.key)) each.scrollLeft = each.scrollWidth;
    if (!data && !taught) refill(text, lesson.text({ overview: view.state.overview }));
  }
  await view.poll(PERIOD_MS, look);
}

function controls(load, button) {
  if (!load.mayStart) return h("p", { class: "soft" }, "Started with --console-write, this page can make a small load of its own to watch.");
  if (!load.isRunning) return [button("start", "Start a small load", "main"), h("p", { class: load.problem ? "wrong" : "soft", role: "status" }, load.problem || `Makes the topic ${load.topic}, writes ${load.recordsPerSecond} records a second and reads them, for ten minutes at most.`)];
  return [button("stop", "Stop the load"), h("p", { class: "soft", role: "status" }, h("span", { class: "live" }, `Writing to ${load.topic}, ${many(load.readers.length, "reader")}; it ends by itself within ${many(Math.ceil(load.secondsLeft / 60), "minute")}.`))];
}

const nothing = (load) => empty("Nothing to show yet", h("p", {}, load.mayStart ? "Start the small load above, or write to a topic with a client." : "Write to a topic with any client, and look again."));

// The load's own topic if it is there, else the first with records.
async function lookAt(load, view) {
  let name = load.topic;
  if (!load.topicExists) {
    const { topics } = await get("topics", {}, view.signal);
    const found = topics.find((each) => !each.isInternal && each.records) || topics.find((each) => !each.isInternal);
    if (!found) return null;
    name = found.name;
  }
  const topic = await get("topic", { name }, view.signal);
  const here = topic.partitions.filter((each) => each.isHere);
  const records = {}, next = {};
  for (const each of here.slice(0, PARTITIONS)) {
    const page = await get("records", { topic: name, partition: each.index, limit: RECORDS, cut: 500 }, view.signal);
    // Both of one answer: between two answers records are written.
    records[each.index] = page.records;
    next[each.index] = page.next;
  }
  const { brokers } = await get("brokers", {}, view.signal);
  const group = load.topicExists ? await maybe(get("group", { id: load.group }, view.signal)) : null;
  const settings = Object.fromEntries((await get("settings", { kind: "topic", name }, view.signal)).settings.map((each) => [each.name, each.value]));
  const committed = Object.fromEntries((group?.offsets || []).map((each) => [each.partition, each.committed]));
  const newest = Object.values(records).flat().filter((each) => !each.batch).sort((one, other) => other.timestamp - one.timestamp)[0];
  const sum = (field) => here.reduce((total, each) => total + each[field], 0);
  const starts = Object.fromEntries(here.map((each) => [each.index, each.start]));
  return { name, topic, brokers, starts, records, next, group, committed, newest, load, overview: view.state.overview, settings, size: sum("size"), total: sum("highWatermark") - sum("start"), setting: (key) => settings[key] ?? "not set" };
}

// A group that is not there yet, or is being loaded, is none.
async function maybe(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Refusal && (error.status === 404 || error.status === 409)) return null;
    throw error;
  }
}
