"use strict";
(() => {
  const root = document.documentElement;
  const given = JSON.parse(document.getElementById("charts").textContent);
  const places = [...document.querySelectorAll(".chart")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  const button = document.getElementById("theme");
  let views = [];

  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  async function drawChart(place, spec) {
    const config = given.configs[theme()][narrow.matches ? "narrow" : "wide"];
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
    views.push(await vegaEmbed(place, whole, options));
  }

  async function draw() {
    for (const view of views) view.finalize();
    views = [];
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    let failed = 0;
    for (const [k, place] of places.entries()) {
      await new Promise((next) => setTimeout(next)); // whoever reads or types comes first
      try {
        await drawChart(place, given.charts[k]);
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
  const redraw = () => { last = last.then(draw); };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    redraw();
  });
  dark.addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
  redraw();
})();
