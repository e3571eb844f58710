"use strict";
// The lineage graph: what a node came from and what came of it stand out, and its facts beside it.
// Without this script a node leads to its row of the table below.
window.mmdbGraph = () => {
  const told = document.querySelector(".told");
  const drawings = [...document.querySelectorAll("svg.lineage")];
  if (!told || !drawings.length) return;
  const edges = [...drawings[0].querySelectorAll("path.edge")].map((e) => e.dataset.e.split(" "));

  function reach(start, from, to) {
    const found = new Set([start]);
    for (const node of found) // grows while it is read
      for (const edge of edges) if (edge[from] === node) found.add(edge[to]);
    return found;
  }

  function light(k) {
    const up = reach(k, 1, 0);
    const down = reach(k, 0, 1);
    for (const drawing of drawings) {
      drawing.classList.add("dim");
      for (const node of drawing.querySelectorAll(".node")) {
        const n = node.dataset.n;
        node.classList.toggle("lit", up.has(n) || down.has(n));
        node.classList.toggle("chosen", n === k);
      }
      for (const edge of drawing.querySelectorAll("[data-e]")) {
        const [parent, child] = edge.dataset.e.split(" ");
        edge.classList.toggle("lit", up.has(child) || down.has(parent));
      }
    }
  }

  function clear() {
    told.hidden = true;
    told.replaceChildren();
    for (const drawing of drawings) {
      drawing.classList.remove("dim");
      for (const node of drawing.querySelectorAll(".chosen")) node.classList.remove("chosen");
    }
  }

  function tell(k) {
    const [name, before, after] = document.getElementById(`node-${k}`).cells;
    const line = (label, cell) => {
      const part = document.createElement("p");
      if (label) part.append(Object.assign(document.createElement("small"), { textContent: `${label} ` }));
      else part.className = "name";
      part.append(...cell.cloneNode(true).childNodes);
      return part;
    };
    const close = Object.assign(document.createElement("a"), { href: "#lineage", textContent: "All of it" });
    close.addEventListener("click", (event) => { event.preventDefault(); clear(); });
    told.replaceChildren(line("", name));
    if (before.textContent) told.append(line("comes from", before));
    if (after.textContent) told.append(line("leads to", after));
    told.append(close);
    told.hidden = false;
    light(k);
  }

  document.getElementById("lineage").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    const place = link && (link.getAttribute("href") || "").match(/^#node-(\d+)$/);
    if (!place || link.closest("table")) return;
    event.preventDefault();
    tell(place[1]);
  });
  document.onkeydown = (event) => { // one, also after a page took over another graph
    if (event.key === "Escape" && !told.hidden) clear();
  };
};
window.mmdbGraph();
