// Start of the page: the tabs, the view that the address names, and the state of the cluster that every tab shows.

import { forget, get, keepLogin, keepToken, Refusal, takeToken, takeWriteToken } from "./api.js";
import { empty, every, h, many, refill } from "./dom.js";
import { showAccess } from "./access.js";
import { showBrokers } from "./brokers.js";
import { forgetChange } from "./change.js";
import { showGroup, showGroups } from "./groups.js";
import { showHistory } from "./history.js";
import { showLearn } from "./learn.js";
import { showLog } from "./log.js";
import { showRecord } from "./record.js";
import { showRecords } from "./records.js";
import { showSubject, showSubjects } from "./schemas.js";
import { showSettings } from "./settings.js";
import { showTopic, showTopics } from "./topics.js";
import { showProducers, showTransactions } from "./transactions.js";

const TABS = [["topics", "Topics"], ["groups", "Groups"], ["transactions", "Transactions"], ["schemas", "Schemas"], ["access", "Access"], ["brokers", "Brokers"], ["history", "History"], ["settings", "Settings"], ["log", "Log"], ["learn", "Learn"]];
const VIEWS = { topics: showTopics, topic: showTopic, records: showRecords, record: showRecord, groups: showGroups, group: showGroup, transactions: showTransactions, producers: showProducers, schemas: showSubjects, subject: showSubject, access: showAccess, brokers: showBrokers, history: showHistory, settings: showSettings, log: showLog, learn: showLearn };
const TAB_OF = { topic: "topics", records: "topics", record: "topics", producers: "topics", group: "groups", subject: "schemas" };
const main = document.getElementById("main");
export const state = { overview: null };
let leave = new AbortController();

// Problems to show: of the last action, until the next action, and of the requests that the page repeats.
const problems = { action: "", poll: "" };

function tell(kind, problem) {
  problems[kind] = problem;
  const text = problems.action || problems.poll, notice = document.getElementById("notice");
  if (notice.dataset.text === text) return;
  notice.dataset.text = text;
  refill(notice, text && [text, " ", h("button", { type: "button", class: "plain", onclick: () => { tell("action", ""); tell("poll", ""); } }, "Close")]);
}

// Does some work, and shows its problem if there is one. `missing` is called if the broker does not have what the address names.
async function tried(work, { kind = "action", missing = null } = {}) {
  try {
    await work();
    tell(kind, "");
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error instanceof Refusal && error.status === 401) askForToken();
    else if (error instanceof Refusal && error.status === 404 && missing) missing(error.message);
    else tell(kind, error instanceof Refusal ? error.message : `The console has a bug: ${error.message}`);
    if (!(error instanceof Refusal)) console.error(error);
  }
}

function askForToken() {
  leave.abort();
  state.overview = null;
  const user = h("input", { id: "user", autocomplete: "username", spellcheck: "false" }), secret = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const submit = (event) => {
    event.preventDefault();
    if (user.value) keepLogin(user.value, secret.value); else keepToken(secret.value);
    start();
  };
  refill(main, h("h1", {}, "This console is locked"),
    h("p", { class: "lead" }, "The start of the broker has printed an address with a token, or its operator has set http.console.token or http.console.users."),
    h("form", { class: "bar", onsubmit: submit }, h("label", { for: "user" }, "User, empty with a token", user), h("label", { for: "token" }, "Token or password", secret), h("button", { class: "main" }, "Open")));
  user.focus();
}

// The view that the address names, and its parameters; no view if there is none of that name.
function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  if (!parts[0]) return ["topics", []];
  try {
    const [name, ...rest] = parts.map(decodeURIComponent);
    return [Object.hasOwn(VIEWS, name) ? name : null, rest];
  } catch (error) {
    if (error instanceof URIError) return [null, []];
    throw error;
  }
}

function nowhere(title, sentence) {
  tell("poll", "");
  refill(main, h("h1", {}, title), empty("Nothing is at this address", h("p", {}, sentence), h("p", {}, h("a", { href: "#/topics" }, "All topics"), " · ", h("a", { href: "#/groups" }, "All groups"))));
}

function titleOf(name, [first, second, third], tab) {
  if (name === null) return "Wrong address";
  if (name === "group") return `Group ${second}`;
  if (name === "producers") return `Producers of ${first} ${second}`;
  if (name === "record") return `Record ${third} of ${first} ${second}`;
  if (name === "records") return `Records of ${first}`;
  if (name === "subject") return `Schemas of ${first}`;
  if (name === "topic") return `Topic ${first}`;
  if (name === "settings" && second) return `Settings of ${second}`;
  return TABS.find(([key]) => key === tab)[1];
}

async function navigate(isFirst = false) {
  leave.abort();
  leave = new AbortController();
  const [name, parameters] = route();
  forgetChange();
  tell("action", "");
  const tab = TAB_OF[name] || name;
  refill(document.getElementById("nav"), TABS.filter(([key]) => key !== "schemas" || state.overview.hasRegistry).map(([key, title]) =>
    h("li", {}, h("a", { href: "#/" + key, "aria-current": key === tab ? "page" : null, "data-key": key }, title))));
  const title = titleOf(name, parameters, tab);
  document.title = `${title} · Ottla`;
  refill(main);
  // Who navigates by keyboard or screen reader begins at the top of the new view, and hears which it is.
  main.setAttribute("aria-label", title);
  if (!isFirst) main.focus();
  const signal = leave.signal;
  if (name === null) { nowhere(title, `The console has no view ${location.hash}.`); return; }
  // A topic or group that does not exist, or not any more.
  const missing = (sentence) => { if (!signal.aborted) { leave.abort(); nowhere(title, sentence); } };
  await tried(() => VIEWS[name]({ main, parameters, signal, state, tried, poll: (ms, work) => every(ms, signal, () => tried(work, { kind: "poll", missing })) }), { missing });
}

function tellHealth(overview) {
  const wrong = [];
  if (overview.offline) wrong.push(`${many(overview.offline, "partition")} offline`);
  if (overview.underReplicated) wrong.push(`${many(overview.underReplicated, "partition")} under-replicated`);
  const health = document.getElementById("health");
  health.className = wrong.length ? "wrong" : "";
  const text = wrong.length ? wrong.join(", ") : `${many(overview.brokers, "broker")}, all partitions in sync`;
  if (health.textContent !== text) refill(health, text);
  refill(document.getElementById("about"),
    `ottla ${overview.version} · broker ${overview.nodeId} of cluster ${overview.clusterId}` +
    (overview.user ? ` · logged in as ${overview.user}` : "") + (overview.canWrite ? "" : " · read-only: start with --console-write to make changes here"),
    !overview.isOpen && [" · ", h("button", { type: "button", class: "plain", "data-key": "leave", onclick: () => { forget(); location.reload(); } }, "Log out")]);
}

async function look() {
  state.overview = await get("overview");
  takeWriteToken(state.overview.writeToken);
  tellHealth(state.overview);
}

async function start() {
  await tried(async () => {
    await look();
    await navigate(true);
  });
}

takeToken();
window.addEventListener("hashchange", () => { if (state.overview) navigate(); });
start();
every(3000, new AbortController().signal, async () => { if (state.overview) await tried(look, { kind: "poll" }); });
