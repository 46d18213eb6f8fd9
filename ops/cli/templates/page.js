"use strict";
// Sorting: a click, Enter or Space on a heading; what is no number comes last, and lines that are equal keep their order.
const number = (text) => {
  const plain = text.trim().replace(/^~ /, "");
  if (plain.endsWith("%")) return Number(plain.slice(0, -1).replace("<", ""));
  return plain === "inf" ? Infinity : plain === "" || plain === "-" ? NaN : Number(plain);
};
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const figures = heading.classList.contains("figure");
      const keyed = [...table.tBodies[0].rows].map((row) => {
        const text = row.cells[column].textContent;
        return { row, key: figures ? number(text) : text };
      });
      const compare = (a, b) => {
        if (!figures) return a.key.localeCompare(b.key, "en", { numeric: true }) * (down ? -1 : 1);
        if (Number.isNaN(a.key) || Number.isNaN(b.key)) return Number.isNaN(a.key) - Number.isNaN(b.key);
        return a.key === b.key ? 0 : (a.key < b.key ? -1 : 1) * (down ? -1 : 1);
      };
      table.tBodies[0].append(...keyed.sort(compare).map((one) => one.row));
    });
  });
}
const download = document.getElementById("download");
download.hidden = false;
download.addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([document.getElementById("report").textContent], { type: "application/json" }));
  link.download = download.dataset.name;
  link.click();
  URL.revokeObjectURL(link.href);
});
