"use strict";
// A page that is served asks every two seconds whether it is out of date, and takes over what has
// changed. Charts and a graph that are as they were stay, with what is chosen in them.
(() => {
  const root = document.documentElement;
  const address = root.dataset.state;
  if (!address) return;
  const EVERY_MS = 2000;
  let tag = root.dataset.tag;
  let graph = lineage(document);
  const sign = document.getElementById("live");
  sign.textContent = "live";

  function lineage(page) {
    const section = page.getElementById("lineage");
    return section ? section.innerHTML : "";
  }

  function specs(page) {
    return JSON.parse(page.getElementById("charts").textContent).charts.map((s) => JSON.stringify(s));
  }

  function keepCharts(fresh) {
    const [before, after] = [specs(document), specs(fresh)];
    const [old, places] = [document, fresh].map((page) => [...page.querySelectorAll(".chart")]);
    for (const [k, place] of places.entries()) {
      const same = before.indexOf(after[k]);
      if (same >= 0 && old[same].dataset.done) {
        old[same].setAttribute("aria-label", place.getAttribute("aria-label"));
        place.replaceWith(old[same]);
      } else if (old[k]) place.style.minHeight = `${old[k].clientHeight}px`; // nothing jumps
    }
  }

  function keepGraph(fresh) {
    const now = lineage(fresh);
    if (now && now === graph) {
      fresh.getElementById("lineage").replaceWith(document.getElementById("lineage"));
      return true;
    }
    graph = now;
    return false;
  }

  function keepOpen(fresh) {
    for (const section of document.querySelectorAll("section")) {
      const same = fresh.getElementById(section.id);
      if (!same) continue;
      const boxes = [...same.querySelectorAll("details")];
      for (const [k, box] of [...section.querySelectorAll("details")].entries())
        if (boxes[k]) boxes[k].open = box.open;
    }
  }

  function placeOf(element) {
    const scope = element && element.closest("section");
    if (!scope) return null;
    return { id: scope.id, at: [...scope.querySelectorAll("a, summary, [tabindex]")].indexOf(element) };
  }

  function takeOver(fresh) {
    const focus = placeOf(document.activeElement);
    keepOpen(fresh);
    const kept = keepGraph(fresh);
    keepCharts(fresh);
    for (const selector of ["h1", "#facts", "#sections", "main", "footer", "#charts"])
      document.querySelector(selector).replaceWith(fresh.querySelector(selector));
    document.title = fresh.title;
    tag = fresh.documentElement.dataset.tag;
    if (focus && document.activeElement === document.body) {
      const scope = document.getElementById(focus.id);
      const found = scope && scope.querySelectorAll("a, summary, [tabindex]")[focus.at];
      if (found) found.focus({ preventScroll: true });
    }
    if (!kept) window.mmdbGraph();
    return window.mmdbDraw(true);
  }

  async function look() {
    const begun = performance.now();
    try {
      const answer = await fetch(address, { headers: { "If-None-Match": `"${tag}"` }, cache: "no-store" });
      if (answer.status === 200) {
        const page = await fetch(location.href, { cache: "no-store" });
        if (page.ok) {
          const text = await page.text();
          await takeOver(new DOMParser().parseFromString(text, "text/html"));
          root.dataset.updates = Number(root.dataset.updates || 0) + 1;
        }
      }
      if (answer.status === 404) sign.textContent = "it is gone";
      else sign.textContent = answer.status < 400 ? "live" : "the database does not answer";
    } catch (error) {
      sign.textContent = "the server does not answer";
    }
    const spent = performance.now() - begun;
    const pause = document.hidden ? 5 * EVERY_MS : EVERY_MS;
    setTimeout(look, Math.max(pause, 9 * spent)); // a tenth of the time at most
  }
  setTimeout(look, EVERY_MS);
})();
