// Who may do what: rules of the authorizer, users of SCRAM, and quotas.

import { get, replacing } from "./api.js";
import { change } from "./change.js";
import { bytes, choice, count, dotted, empty, field, fold, h, input, link, many, refill, table, turns, unseenStatus } from "./dom.js";

const RESOURCES = ["topic", "group", "cluster", "transactional-id", "delegation-token", "user"];
const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const KINDS = [["user", "User"], ["client-id", "Client id"], ["ip", "Address"]];
const ANYBODY = "others without a quota";

const removal = (key, name, act) => h("button", { type: "button", class: "plain", "data-key": `remove ${key}`, "aria-label": `Remove ${name}`, onclick: act }, "Remove");

const LISTS = {
  acls: { title: "Rules", noun: "rule", lead: "Rules (ACLs) say which principal may do what. A broker obeys them if it has an authorizer.", show: showRules, form: ruleForm },
  users: { title: "Users", noun: "user", lead: "Users that may log in by SCRAM, with a password that the brokers keep salted.", show: showUsers, form: userForm },
  quotas: { title: "Quotas", noun: "quota", lead: "Quotas limit how much users, client ids and addresses may do at each broker.", show: showQuotas, form: quotaForm },
};

export async function showAccess(view) {
  const name = Object.hasOwn(LISTS, view.parameters[0] ?? "acls") ? view.parameters[0] ?? "acls" : "acls";
  const kind = LISTS[name], wanted = input({ type: "search" }), list = h("div"), said = unseenStatus(), pages = [""], next = replacing(view.signal);
  const mayWrite = view.state.overview.canWrite;
  const look = () => view.tried(async () => {
    const found = await get(name, { after: pages.at(-1), contains: wanted.value }, next());
    const rows = found[name];
    refill(list, found.isOn === false ? empty("There is no authorizer", h("p", {}, "Everybody may do everything. authorizer.class.name names one.")) : rows.length ? kind.show(view, rows, mayWrite, look)
      : empty(`No ${kind.noun}${wanted.value ? ` contains “${wanted.value}”` : "s yet"}`), turns(pages, found.next, "More", (step) => { step(); return look(); }));
    refill(said, `${many(rows.length, kind.noun)} listed`);
  });
  wanted.addEventListener("input", () => { pages.splice(1); look(); });
  refill(view.main, h("h1", {}, "Access"), h("p", {}, Object.entries(LISTS).flatMap(([key, { title }], index) => [index ? " · " : "", key === name ? h("strong", {}, title) : link(title, "access", key)])),
    h("p", { class: "lead" }, kind.lead), h("div", { class: "bar" }, field("contains", "Contains", wanted)), said, mayWrite && kind.form(view, look), list);
  await look();
}

const words = (rule) => `${rule.permission} ${rule.principal} ${rule.operation} on ${rule.resource} ${rule.name}`;

function showRules(view, rules, mayWrite, then) {
  const columns = [["Principal"], ["Permission"], ["Operation"], ["Resource"], ["Name"], ["Pattern"], ["Host"], ...(mayWrite ? [[""]] : [])];
  return table("Rules", columns, rules.map((each) => [dotted(each.principal), h("span", { class: each.permission === "deny" ? "tag wrong" : "tag on" }, each.permission), each.operation, each.resource,
    dotted(each.name), each.pattern, each.host, ...(mayWrite ? [removal(words(each), words(each), () => change(view, "remove-acl", each, `Remove the rule: ${words(each)}?`, then))] : [])]));
}

function ruleForm(view, then) {
  const controls = { permission: choice(["allow", "deny"]), principal: input({ required: true, placeholder: "User:alice" }), operation: choice(OPERATIONS), resource: choice(RESOURCES), name: input(), pattern: choice(["literal", "prefixed"]), host: input({ value: "*" }) };
  const titles = { permission: "Permission", principal: "Principal", operation: "Operation", resource: "Resource", name: "Name", pattern: "Pattern", host: "From host" };
  const named = field("acl-name", titles.name, controls.name);
  controls.resource.addEventListener("change", () => { named.hidden = controls.resource.value === "cluster"; });
  const submit = (event) => {
    event.preventDefault();
    const rule = Object.fromEntries(Object.entries(controls).map(([key, control]) => [key, control.value]));
    return change(view, "add-acl", rule, `Add the rule: ${words(rule)}?`, then);
  };
  return form("Add a rule", submit, Object.entries(controls).map(([key, control]) => (key === "name" ? named : field(`acl-${key}`, titles[key], control))), "Add");
}

function showUsers(view, users, mayWrite, then) {
  const told = (user, each) => [`${each.name}, ${count(each.iterations)} iterations`, mayWrite && [" ", removal(`${user} ${each.name}`, `${each.name} of ${user}`, () =>
    change(view, "delete-user", { name: user, mechanism: each.name }, `Delete the password of ${user} for ${each.name}? It cannot be brought back.`, then))]];
  return table("Users", [["User"], ["Mechanisms"]], users.map((each) => [dotted(each.name), each.mechanisms.map((mechanism) => h("div", {}, told(each.name, mechanism)))]));
}

function userForm(view, then) {
  const name = input({ required: true }), password = input({ type: "password", required: true, autocomplete: "new-password" }), mechanism = choice(["SCRAM-SHA-512", "SCRAM-SHA-256"]);
  const submit = (event) => {
    event.preventDefault();
    return change(view, "set-user", { name: name.value, password: password.value, mechanism: mechanism.value }, `Set the password of ${name.value} for ${mechanism.value}?`, () => { password.value = ""; return then(); });
  };
  return form("Add a user, or set another password", submit, [field("user-name", "User", name), field("user-password", "Password", password), field("user-mechanism", "Mechanism", mechanism)], "Set");
}

function showQuotas(view, quotas, mayWrite, then) {
  const who = (each) => KINDS.filter(([kind]) => kind in each.entity).map(([kind, title]) => `${title} ${each.entity[kind] ?? ANYBODY}`).join(", ");
  const rows = quotas.flatMap((each) => Object.entries(each.values).map(([quota, value]) => [dotted(who(each)), dotted(quota), amount(quota, value),
    ...(mayWrite ? [removal(`${who(each)} ${quota}`, `${quota} of ${who(each)}`, () => change(view, "set-quota", { entity: each.entity, quota, value: null }, `Remove ${quota} of ${who(each)}?`, then))] : [])]));
  return table("Quotas", [["Of"], ["Quota"], ["Value", "number"], ...(mayWrite ? [[""]] : [])], rows);
}

const amount = (quota, value) => count(value) + (quota.endsWith("_byte_rate") ? ` bytes/s (${bytes(value)}/s)` : quota.endsWith("_percentage") ? " %" : "/s");

function quotaForm(view, then) {
  const names = Object.fromEntries(KINDS.map(([kind]) => [kind, input({ placeholder: "any" })])), quota = choice(QUOTAS), value = input({ type: "number", min: "0", step: "any", required: true });
  const submit = (event) => {
    event.preventDefault();
    // A star stands for those that have no quota of their own.
    const entity = Object.fromEntries(Object.entries(names).filter(([, control]) => control.value).map(([kind, control]) => [kind, control.value === "*" ? null : control.value]));
    return change(view, "set-quota", { entity, quota: quota.value, value: Number(value.value) }, `Set ${quota.value} to ${value.value}?`, then);
  };
  return form("Set a quota", submit, [...KINDS.map(([kind, title]) => field(`quota-${kind}`, `${title}, * for ${ANYBODY}`, names[kind])), field("quota-name", "Quota", quota), field("quota-value", "Value", value)], "Set");
}

const form = (title, submit, fields, button) => fold(title, {}, h("form", { class: "bar", onsubmit: submit }, fields, h("button", { class: "main" }, button)));
