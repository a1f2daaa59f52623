"use strict";
// Without this script the page shows the same tables; with it, they can be sorted and filtered, and say that they scroll.
const widths = new ResizeObserver(entries => {
  for (const { target } of entries) {
    const box = target.closest(".shaded");
    box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth;
  }
});
for (const table of document.querySelectorAll("table.errors")) {
  const body = table.tBodies[0], given = [...body.rows], heads = [...table.tHead.rows[0].cells];
  widths.observe(table);
  widths.observe(table.parentElement);
  const value = (row, column) => Number.parseFloat(row.cells[column].dataset.sort ?? row.cells[column].textContent);
  const compare = (column, sign) => (a, b) => {
    if (column === 0) return sign * a.cells[0].textContent.localeCompare(b.cells[0].textContent);
    const [x, y] = [value(a, column), value(b, column)];
    return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y) || 0;
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort || "none"];
      for (const other of heads) other.removeAttribute("aria-sort");
      if (next !== "none") head.ariaSort = next;
      body.append(...(next === "none" ? given : [...given].sort(compare(column, next === "ascending" ? 1 : -1))));
    });
  });
}
const filter = document.createElement("input");
filter.type = "search";
filter.placeholder = "tent, dmse lr";
const label = document.createElement("label");
label.className = "filter";
const none = document.createElement("output");
label.append("Show only runs named ", filter, none);
document.querySelector("header").append(label);
filter.addEventListener("input", () => {
  // Commas separate alternatives; every word of one must occur.
  const wanted = filter.value.toLowerCase().split(",").map(part => part.split(/\s+/).filter(Boolean)).filter(part => part.length);
  const fits = text => !wanted.length || wanted.some(words => words.every(word => text.toLowerCase().includes(word)));
  for (const row of document.querySelectorAll("table.errors tbody tr")) row.hidden = !fits(row.cells[0].textContent);
  for (const run of document.querySelectorAll("#runs details")) run.hidden = !fits(run.querySelector("summary").textContent.split(", seed ")[0]);
  for (const runs of document.querySelectorAll("#runs .runs")) runs.hidden = !runs.querySelector("details:not([hidden])");
  for (const section of document.querySelectorAll("section.group")) {
    section.hidden = !section.querySelector("tbody tr:not([hidden])");
    document.querySelector(`nav a[href="#${section.id}"]`).parentElement.hidden = section.hidden;
  }
  none.textContent = document.querySelector("section.group:not([hidden])") ? "" : " No run has such a name.";
});
