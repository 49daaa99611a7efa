// A search field for long pages, such as that of the settings: it hides the blocks that lack one of the words.
document.addEventListener("DOMContentLoaded", () => {
  const main = document.querySelector("[role=main]");
  const headings = main ? [...main.querySelectorAll(":scope > h3")] : [];
  if (headings.length < 60) return;
  const partsOf = (heading) => {
    const parts = [heading];
    for (let next = heading.nextElementSibling; next && !next.matches("h2, h3"); next = next.nextElementSibling) parts.push(next);
    return parts;
  };
  const blocks = headings.map((heading) => {
    const parts = partsOf(heading);
    return { parts, text: parts.map((each) => each.textContent).join("\n").toLowerCase() };
  });
  const sections = [...main.querySelectorAll(":scope > h2")].map(partsOf);
  const form = document.createElement("form");
  form.id = "filter";
  form.setAttribute("role", "search");
  const label = document.createElement("label");
  label.textContent = "Only with ";
  label.htmlFor = "filter-words";
  const field = Object.assign(document.createElement("input"), { type: "search", id: "filter-words", placeholder: "retention" });
  const count = document.createElement("output");
  form.append(label, field, count);
  main.insertBefore(form, main.querySelector(":scope > h2"));
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { parts, text } of blocks) {
      const fits = words.every((word) => text.includes(word));
      shown += fits;
      for (const part of parts) part.hidden = !fits;
    }
    for (const section of sections) {
      const first = section[section.length - 1].nextElementSibling;
      let next = first;
      while (next && !next.matches("h2") && next.hidden) next = next.nextElementSibling;
      for (const part of section) part.hidden = !next || next.matches("h2");
    }
    count.textContent = `${shown} of ${blocks.length}`;
  };
  field.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => {
    if (!document.getElementById(decodeURIComponent(location.hash.slice(1)))?.hidden) return;
    field.value = "";
    show();
    document.getElementById(decodeURIComponent(location.hash.slice(1))).scrollIntoView();
  });
  show();
});
