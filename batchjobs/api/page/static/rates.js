// The chart of the last hour, out of the table that has the same numbers.
"use strict";

(() => {
  const HEIGHT = 224;
  const COMPACT = new Intl.NumberFormat("en", { notation: "compact" });
  const FEW = 3; // lines, under which a wash does not hide the others
  let chart = null;
  let drawn = "";

  const number = (cell) => (cell.dataset.value === "" ? null : Number(cell.dataset.value));

  const read = (table) => {
    const models = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent);
    const rows = [...table.tBodies[0].rows];
    const minutes = rows.map((row) => Number(row.cells[0].dataset.at));
    const rates = models.map((_, model) => rows.map((row) => number(row.cells[model + 1])));
    return { models, data: [minutes, ...rates] };
  };

  const series = (label, number, all) => ({
    label,
    stroke: colour(`--c${Math.min(number + 1, 7)}`),
    fill: all.length < FEW ? `${colour(`--c${number + 1}`)}1c` : undefined,
    width: 1.5,
    points: { show: false },
    value: (_, rate) => (rate === null ? "–" : `${Math.round(rate).toLocaleString("en")} tok/s`),
  });

  const options = (holder, models) => ({
    width: holder.clientWidth,
    height: HEIGHT,
    cursor: { y: false, points: { size: 6 } },
    scales: { y: { range: (_, least, most) => [0, Math.max(1, most * 1.1)] } },
    axes: [
      axis({ values: "{HH}:{mm}", space: 60 }),
      axis({ size: 56, values: (_, ticks) => ticks.map((tick) => (tick < 1e5 ? tick.toLocaleString("en") : COMPACT.format(tick))) }),
    ],
    series: [{ label: "At", value: "{HH}:{mm}" }, ...models.map(series)],
  });

  const draw = (isAnew) => {
    const holder = document.querySelector("[data-chart]");
    const table = holder && document.getElementById(holder.dataset.chart);
    if (!table) return;
    const { models, data } = read(table);
    const kind = models.join("\n");
    if (chart && kind === drawn && !isAnew && holder.contains(chart.root)) {
      chart.setData(data);
      return;
    }
    chart?.destroy();
    holder.replaceChildren();
    chart = new uPlot(options(holder, models), data, holder);
    drawn = kind;
    sizes.disconnect();
    sizes.observe(holder);
  };

  const sizes = new ResizeObserver(([entry]) => {
    const { width } = entry.contentRect;
    if (chart && width > 0) chart.setSize({ width, height: HEIGHT });
  });

  document.addEventListener("htmx:after:swap", () => draw(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  draw(true);
})();
