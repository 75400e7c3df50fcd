"use strict";
// Tables: rows are searched, filtered, sorted and folded. Layers that contain a match stay visible.
const units = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
const numberIn = (text) => {
  if (/^(NaN|inf)/i.test(text)) return Infinity;
  const match = /^[<>]?(-?[\d.]+(?:e[-+]?\d+)?)\s*(\w*)/.exec(text.replaceAll(",", ""));
  return match ? Number(match[1]) * (units[match[2]] || 1) : null;
};
const compareCells = (one, other) => {
  const [a, b] = [numberIn(one), numberIn(other)];
  if (a !== null && b !== null) return a - b || 0;
  return a !== null || b !== null ? (a === null) - (b === null) : one.localeCompare(other);
};
const button = (text, action) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", action);
  return made;
};
for (const area of document.querySelectorAll(".searched")) {
  const tools = area.querySelector(".tools");
  const input = tools && tools.querySelector("input");
  const selects = tools ? [...tools.querySelectorAll("select")] : [];
  const body = area.querySelector("tbody");
  const rows = [...body.rows].map((row) => ({
    row,
    depth: Number(row.dataset.depth || 0),
    folds: Number(row.dataset.folds || 0),
    folder: null,
    isOpen: false,
    text: row.textContent.toLowerCase(),
    cells: [...row.children].map((cell) => cell.textContent),
  }));
  rows.forEach((one, at) => {
    for (const folded of rows.slice(at + 1, at + 1 + one.folds)) folded.folder = one;
  });
  const layers = rows.filter((one) => !one.folds);
  let sorted = null;
  const apply = () => {
    const words = input ? input.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    const chosen = selects.filter((select) => select.value);
    const isFiltered = words.length > 0 || chosen.length > 0;
    let matches = 0;
    let above = -1;
    for (const one of [...rows].reverse()) {
      const isMatch =
        !(one.folds && (isFiltered || sorted)) &&
        words.every((word) => one.text.includes(word)) &&
        chosen.every((select) => one.cells[Number(select.dataset.column)] === select.value);
      const isContext = isFiltered && !sorted && !isMatch && one.depth < above;
      matches += isMatch;
      if (isMatch || isContext) above = one.depth;
      const isFolded = !isFiltered && !sorted && one.folder && !one.folder.isOpen;
      one.row.hidden = isFolded || (!isMatch && !isContext);
      one.row.classList.toggle("context", isContext);
    }
    if (tools) tools.querySelector("output").textContent = isFiltered ? `${matches} of ${layers.length}` : "";
  };
  for (const one of rows.filter((row) => row.folds)) {
    const [cell] = one.row.children;
    const toggle = button(cell.textContent, () => {
      one.isOpen = !one.isOpen;
      toggle.setAttribute("aria-expanded", one.isOpen);
      apply();
    });
    toggle.className = "fold";
    toggle.setAttribute("aria-expanded", false);
    cell.replaceChildren(toggle);
  }
  const headers = layers.length > 1 ? [...area.querySelectorAll("thead th")] : [];
  headers.forEach((header, column) => {
    const text = (one) => one.cells[column] || "";
    const sort = button(header.textContent, () => {
      const isNumeric = layers.some((one) => numberIn(text(one)) !== null);
      const order = isNumeric ? ["descending", "ascending"] : ["ascending", "descending"];
      const next = order[order.indexOf(header.getAttribute("aria-sort")) + 1];
      for (const other of headers) other.removeAttribute("aria-sort");
      if (next) header.setAttribute("aria-sort", next);
      sorted = next || null;
      const sign = next === "descending" ? -1 : 1;
      const filled = layers.filter(text).sort((one, other) => sign * compareCells(text(one), text(other)));
      const all = next ? [...filled, ...layers.filter((one) => !text(one)), ...rows.filter((one) => one.folds)] : rows;
      body.append(...all.map((one) => one.row));
      body.classList.toggle("sorted", Boolean(next));
      apply();
    });
    sort.className = "sort";
    header.replaceChildren(sort);
  });
  if (layers.length < rows.length) apply();
  if (!tools) continue;
  input.addEventListener("input", apply);
  for (const select of selects) select.addEventListener("input", apply);
  tools.hidden = false;
}

// Commands: a button copies the text, which browsers also allow in local files.
for (const command of document.querySelectorAll(".command")) {
  const copy = button("Copy", () => {
    getSelection().selectAllChildren(command.querySelector("code"));
    copy.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
  });
  command.append(copy);
}

// Graphs: nodes and edges have rows and lanes; their sizes depend on which blocks are open.
const drawGraph = (figure) => {
  const data = JSON.parse(figure.dataset.graph);
  const keys = ["label", "text", "tone", "parent", "row", "lane", "details"];
  const nodes = data.nodes.map((values, index) => ({
    index,
    ...Object.fromEntries(keys.map((key, at) => [key, values[at]])),
    children: [],
    isOpen: data.nodes.length <= 60,
  }));
  const root = { children: [], isOpen: true, parent: null };
  for (const node of nodes) {
    node.above = node.parent < 0 ? root : nodes[node.parent];
    node.above.children.push(node);
    node.words = [node.label, node.text, ...node.details.flat()].join(" ").toLowerCase();
  }
  const edges = data.edges.map(([source, target, lane]) => {
    const blocks = new Set();
    for (let block = nodes[source].above; block; block = block.above) blocks.add(block);
    let shared = nodes[target].above;
    while (!blocks.has(shared)) shared = shared.above;
    shared.lanes = Math.max(shared.lanes || 0, lane + 1);
    return { source: nodes[source], target: nodes[target], lane, shared };
  });
  const view = figure.querySelector(".view");
  const output = figure.querySelector("output");
  const search = figure.querySelector("input");
  const space = { row: 28, lane: 24, pad: 14, head: 40, height: 38 };
  let scale = 1;
  let selected = null;
  let drawing = null;
  let isDragged = false;

  const element = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const short = (text, most) =>
    text.length <= most ? text : `${text.slice(0, most / 2 - 1)}…${text.slice(1 - most / 2)}`;
  const hidden = (node) => {
    let visible = node;
    for (let block = node.above; block; block = block.above) if (!block.isOpen) visible = block;
    return visible;
  };

  const measure = (block) => {
    const longest = Math.max(short(block.label || "", 28).length, short(block.text || "", 28).length);
    block.width = 28 + 7.7 * longest;
    block.height = space.height;
    if (!block.isOpen || !block.children.length) return;
    block.rows = [];
    block.columns = Array(block.lanes || 1).fill(0);
    for (const node of block.children) {
      measure(node);
      block.rows[node.row] = Math.max(block.rows[node.row] || 0, node.height);
      block.columns[node.lane] = Math.max(block.columns[node.lane] || 0, node.width);
    }
    const add = (sizes, gap) => sizes.reduce((sum, size) => sum + (size || 0) + gap, -gap);
    block.width = Math.max(block.width, add(block.columns, space.lane) + 2 * space.pad);
    block.height = add(block.rows, space.row) + space.head + space.pad;
  };
  const place = (block, x, y) => {
    block.x = x;
    block.y = y;
    if (!block.isOpen || !block.children.length) return;
    const starts = (sizes, gap, start) =>
      sizes.map((size) => {
        const at = start;
        start += (size || 0) + gap;
        return at;
      });
    const left = starts(block.columns, space.lane, x + space.pad);
    const tops = starts(block.rows, space.row, y + space.head);
    block.centers = left.map((at, lane) => at + block.columns[lane] / 2);
    for (const node of block.children) {
      place(node, block.centers[node.lane] - node.width / 2, tops[node.row]);
    }
  };
  const path = (edge, source, target) => {
    const [x, y] = [source.x + source.width / 2, source.y + source.height];
    const [left, top] = [target.x + target.width / 2, target.y];
    const bend = space.row / 2;
    if (top < y) return `M${x} ${y}C${x + 90} ${y + 40} ${left + 90} ${top - 40} ${left} ${top}`;
    let block = target.above === edge.shared ? source : target;
    while (block.above !== edge.shared) block = block.above;
    const isFar = top - y > space.row + space.head;
    const side = isFar ? block.x + block.width - space.pad / 2 : x;
    const center = edge.lane < 0 ? side : edge.shared.centers[edge.lane];
    return (
      `M${x} ${y}C${x} ${y + bend} ${center} ${y + bend} ${center} ${y + 2 * bend}` +
      `V${top - 2 * bend}C${center} ${top - bend} ${left} ${top - bend} ${left} ${top}`
    );
  };
  const visible = () => nodes.filter((node) => hidden(node) === node);

  const draw = () => {
    measure(root);
    place(root, 0, -space.head + space.pad);
    root.height += 2 * space.pad - space.head;
    drawing = element("svg", { viewBox: `0 0 ${root.width} ${root.height}`, "aria-hidden": "false" });
    const drawn = new Set();
    const lines = [];
    for (const edge of edges) {
      const [source, target] = [hidden(edge.source), hidden(edge.target)];
      const name = `${source.index} ${target.index}`;
      if (source === target || drawn.has(name)) continue;
      drawn.add(name);
      const isChosen = selected && (source === selected || target === selected);
      lines.push(element("path", { class: isChosen ? "edge chosen" : "edge", d: path(edge, source, target) }));
    }
    const shapes = visible().map((node) => {
      const isBlock = node.children.length > 0;
      const group = element("g", {
        class: `node${isBlock ? " block" : ""}${node === selected ? " chosen" : ""}${node.isMatch ? " match" : ""}`,
        transform: `translate(${node.x} ${node.y})`,
        role: "button",
        tabindex: "-1",
        ...(isBlock ? { "aria-expanded": String(node.isOpen) } : {}),
      });
      const mark = isBlock ? (node.isOpen ? "▾ " : "▸ ") : "";
      group.append(
        element("rect", { class: "box", width: node.width, height: node.height, rx: 5 }),
        element("rect", { class: `mark f-${node.tone || "plain"}`, width: 6, height: node.height, rx: 3 }),
        element("text", { class: "name", x: 14, y: 16 }, mark + short(node.label, 28)),
        element("text", { x: 14, y: 31 }, short(node.text, 28)),
      );
      node.shape = group;
      group.addEventListener("click", () => isDragged || choose(node, isBlock));
      return group;
    });
    const isOpen = (shape) => shape.getAttribute("aria-expanded") === "true";
    drawing.append(...shapes.filter(isOpen), ...lines, ...shapes.filter((shape) => !isOpen(shape)));
    if (shapes.length) (selected && hidden(selected) === selected ? selected.shape : shapes[0]).setAttribute("tabindex", "0");
    view.replaceChildren(drawing);
    zoom(scale);
  };
  const zoom = (factor) => {
    scale = Math.min(3, Math.max(0.1, factor));
    drawing.setAttribute("width", root.width * scale);
    drawing.setAttribute("height", root.height * scale);
  };
  const fit = () => zoom(Math.min(1, view.clientWidth / root.width, Math.max(view.clientHeight, 300) / root.height));
  const choose = (node, toggles) => {
    if (toggles) node.isOpen = !node.isOpen;
    selected = node;
    const list = document.createElement("dl");
    for (const [label, text] of [["name", node.label], ...node.details, ["", node.text]]) {
      const [term, value] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = label;
      value.textContent = text;
      if (label) list.append(term, value);
    }
    figure.querySelector(".details").replaceChildren(list);
    const [left, top] = [node.x * scale - view.scrollLeft, node.y * scale - view.scrollTop];
    draw();
    view.scrollLeft = node.x * scale - left; // the node stays where it is on the screen
    view.scrollTop = node.y * scale - top;
    node.shape.focus({ preventScroll: true });
  };
  const show = (node) => {
    for (let block = node.above; block; block = block.above) block.isOpen = true;
    selected = node;
    draw();
    view.scrollLeft = (node.x + node.width / 2) * scale - view.clientWidth / 2;
    view.scrollTop = (node.y + node.height / 2) * scale - view.clientHeight / 2;
  };
  const find = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = [];
    for (const node of nodes) {
      node.isMatch = words.length > 0 && words.every((word) => node.words.includes(word));
      if (node.isMatch && !node.children.length) matches.push(node);
    }
    output.textContent = words.length ? `${matches.length} found` : "";
    return matches;
  };
  search.addEventListener("input", () => {
    const [first] = find();
    first ? show(first) : draw();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const matches = find();
    if (matches.length) show(matches[(matches.indexOf(selected) + 1) % matches.length]);
  });
  const open = (isOpen) => () => {
    for (const node of nodes) node.isOpen = isOpen;
    draw();
  };
  const actions = [() => zoom(scale * 1.3), () => zoom(scale / 1.3), fit, open(true), open(false)];
  figure.querySelectorAll("button").forEach((control, at) => control.addEventListener("click", actions[at]));
  view.addEventListener("keydown", (event) => {
    const shapes = visible();
    const at = shapes.findIndex((node) => node.shape === document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (at < 0) return;
    if (step && shapes[at + step]) {
      document.activeElement.setAttribute("tabindex", "-1");
      shapes[at + step].shape.setAttribute("tabindex", "0");
      shapes[at + step].shape.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      choose(shapes[at], shapes[at].children.length > 0);
    } else return;
    event.preventDefault();
  });
  view.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // without it, the wheel scrolls
    event.preventDefault();
    zoom(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
  }, { passive: false });
  view.addEventListener("pointerdown", (start) => {
    isDragged = false;
    if (start.pointerType === "touch" || start.button) return; // which scroll by themselves
    const from = [view.scrollLeft, view.scrollTop];
    const move = (event) => {
      const [x, y] = [event.clientX - start.clientX, event.clientY - start.clientY];
      isDragged ||= Math.abs(x) + Math.abs(y) > 5;
      if (isDragged) [view.scrollLeft, view.scrollTop] = [from[0] - x, from[1] - y];
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", () => window.removeEventListener("pointermove", move), { once: true });
  });
  draw();
  zoom(Math.max(0.7, Math.min(1, view.clientWidth / root.width)));
};

// A page of many models opens fast, because a graph is drawn when it comes into view.
const undrawn = new Set(document.querySelectorAll(".graph"));
const drawOnce = (figure) => undrawn.delete(figure) && drawGraph(figure);
const watcher = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => drawOnce(entry.target)),
  { rootMargin: "300px" },
);
for (const figure of undrawn) {
  figure.hidden = false;
  watcher.observe(figure);
}
addEventListener("beforeprint", () => undrawn.forEach(drawOnce));
