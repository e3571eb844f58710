"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  const button = document.getElementById("theme");
  const views = new Map(); // by place

  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  async function drawChart(place, spec, configs) {
    const config = configs[theme()][narrow.matches ? "narrow" : "wide"];
    const whole = {
      width: "container",
      autosize: { type: "fit-x", contains: "padding" },
      params: [{ name: "room", value: place.clientWidth - 60 }],
      ...spec,
    };
    const options = {
      config,
      actions: false,
      ast: true, // expressions are interpreted: the page's policy forbids to evaluate text
      renderer: JSON.stringify(spec).length > 60000 ? "canvas" : "svg",
      tooltip: { theme: theme() },
      logLevel: 1, // errors
    };
    views.set(place, await vegaEmbed(place, whole, options));
    // the place says what the chart shows; its marks have no names of their own
    for (const drawn of place.querySelectorAll("svg, canvas")) drawn.setAttribute("aria-hidden", "true");
    place.dataset.done = 1;
  }

  // Draws all charts; or those that are new, when the page took over others.
  async function draw(fresh) {
    const places = [...document.querySelectorAll(".chart")];
    for (const [place, view] of views)
      if (!fresh || !places.includes(place)) {
        view.finalize();
        views.delete(place);
      }
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    const given = JSON.parse(document.getElementById("charts").textContent);
    let failed = 0;
    for (const [k, place] of places.entries()) {
      if (views.has(place)) continue;
      await new Promise((next) => setTimeout(next)); // whoever reads or types comes first
      try {
        await drawChart(place, given.charts[k], given.configs);
      } catch (error) {
        failed += 1;
        place.textContent = "This chart could not be drawn; the table below has its numbers.";
        console.error(error);
      }
    }
    root.dataset.failed = failed;
    root.dataset.drawn = Math.round(performance.now());
  }

  // One drawing at a time: a second wish waits for the first to end.
  let last = Promise.resolve();
  const redraw = () => (last = last.then(() => draw(false)));
  window.mmdbDraw = () => (last = last.then(() => draw(true)));
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    redraw();
  });
  dark.addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
  redraw();
})();
