"use strict";
// Tables that can be searched: rows that do not match are hidden, and layers that hold a match stay.
for (const area of document.querySelectorAll(".searched")) {
  const tools = area.querySelector(".tools");
  if (!tools) continue;
  const input = tools.querySelector("input");
  const selects = [...tools.querySelectorAll("select")];
  const count = tools.querySelector("output");
  const rows = [...area.querySelectorAll("tbody tr")].map((row) => ({
    row,
    depth: Number(row.dataset.depth || 0),
    text: row.textContent.toLowerCase(),
    cells: [...row.children].map((cell) => cell.textContent),
  }));
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = selects.filter((select) => select.value);
    const isFiltered = words.length > 0 || chosen.length > 0;
    let matches = 0;
    let above = -1;
    for (const one of [...rows].reverse()) {
      const isMatch =
        words.every((word) => one.text.includes(word)) &&
        chosen.every((select) => one.cells[Number(select.dataset.column)] === select.value);
      const isContext = isFiltered && !isMatch && one.depth < above;
      matches += isMatch;
      if (isMatch || isContext) above = one.depth;
      one.row.hidden = !isMatch && !isContext;
      one.row.classList.toggle("context", isContext);
    }
    count.textContent = isFiltered ? `${matches} of ${rows.length}` : "";
  };
  input.addEventListener("input", apply);
  for (const select of selects) select.addEventListener("input", apply);
  tools.hidden = false;
}
