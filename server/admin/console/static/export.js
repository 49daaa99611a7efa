// Records as JSON and CSV, for the clipboard and for files.

const cellText = (cell) => (cell === null || cell === undefined ? null : cell.text);

// A value that is JSON stays JSON, digit by digit. A cell that is cut or hex is a text, and says so.
function jsonOf(cell) {
  if (cell === null || cell === undefined) return "null";
  if (cell.form === "json" && !cell.isCut) {
    try {
      JSON.parse(cell.text);
      return cell.text;
    } catch (error) { if (!(error instanceof SyntaxError)) throw error; }
  }
  return JSON.stringify(cell.text);
}

function recordJson(record) {
  const members = [["partition", record.partition], ["offset", record.offset], ["timestamp", record.timestamp]].map(([name, value]) => `"${name}":${value}`);
  members.push(`"key":${jsonOf(record.key)}`, `"value":${jsonOf(record.value)}`);
  if (record.headers) members.push(`"headers":${JSON.stringify(record.headers.map(([name, value]) => [cellText(name), cellText(value)]))}`);
  for (const name of ["key", "value"]) {
    if (record[name]?.form === "hex") members.push(`"${name}Form":"hex"`);
    if (record[name]?.isCut) members.push(`"${name}IsCut":true`);
  }
  return `{${members.join(",")}}`;
}

const isRecord = (each) => !each.marker && !each.batch;

export const asJson = (records) => `[${records.filter(isRecord).map(recordJson).join(",\n")}]\n`;

// As RFC 4180 has it. A text that a spreadsheet would take for a formula gets an apostrophe in front.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (/^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text)) text = "'" + text;
  return /[",\r\n]|^\s|\s$/.test(text) || text === "" ? `"${text.replaceAll('"', '""')}"` : text;
}

export function asCsv(records) {
  const rows = [["partition", "offset", "timestamp", "key", "value", "headers"]];
  for (const each of records.filter(isRecord)) {
    const headers = each.headers ? JSON.stringify(each.headers.map(([name, value]) => [cellText(name), cellText(value)])) : null;
    rows.push([each.partition, each.offset, each.timestamp >= 0 ? new Date(each.timestamp).toISOString() : "", cellText(each.key), cellText(each.value), headers]);
  }
  return rows.map((row) => row.map(csvCell).join(",") + "\r\n").join("");
}

// Browsers give the clipboard only to pages that they trust. Elsewhere the text is selected and copied as a person would.
export async function copy(text, what) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    if (!isDone) throw new Error("The browser does not let the page copy.");
  }
  return `${what} is copied.`;
}

export function save(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  return `${name} is saved.`;
}

// Name, bytes and type of a file with the value of a record; what is shown as hex becomes bytes again.
export function valueFile(topic, record) {
  const { form, text } = record.value, name = `${topic}-${record.partition}-${record.offset}`;
  if (form === "hex") return [`${name}.bin`, new Uint8Array(text ? text.split(" ").map((each) => Number.parseInt(each, 16)) : []), "application/octet-stream"];
  return form === "json" ? [`${name}.json`, text, "application/json"] : [`${name}.txt`, text, "text/plain;charset=utf-8"];
}
