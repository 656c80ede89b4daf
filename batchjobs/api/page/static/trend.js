// Curves of suites, out of the tables that have the same numbers. Runs are evenly spaced: a night
// that was missed is no gap in the score.
"use strict";

(() => {
  const HEIGHT = 240;
  const SIZE = 4.5;
  const MARKS = { ok: ["--good", "dot"], worse: ["--bad", "down"], better: ["--accent", "up"], "no verdict": ["--warn", "diamond"] };
  const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  const charts = [];

  const read = (holder) => {
    const rows = [...document.getElementById(holder.dataset.trend).tBodies[0].rows];
    const numbers = (name) => rows.map((row) => Number(row.dataset[name]));
    const { mean, low, high } = holder.dataset;
    const flat = (value) => rows.map(() => (value ? Number(value) : null));
    return {
      rows,
      data: [rows.map((_, index) => index), flat(high), flat(low), flat(mean), numbers("score")],
    };
  };

  const shape = (context, kind, x, y, size) => {
    context.beginPath();
    if (kind === "dot" || kind === "ring") context.arc(x, y, size, 0, 2 * Math.PI);
    else {
      const corners = {
        down: [[-1.2, -1], [1.2, -1], [0, 1.2]],
        up: [[-1.2, 1], [1.2, 1], [0, -1.2]],
        diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
      }[kind];
      corners.forEach(([across, down], index) => {
        context[index ? "lineTo" : "moveTo"](x + across * size, y + down * size);
      });
      context.closePath();
    }
  };

  // Colour is never the only sign: each verdict has a shape of its own.
  const drawMarks = (rows) => (chart) => {
    const { ctx: context } = chart;
    const size = SIZE * devicePixelRatio;
    context.save();
    rows.forEach((row, index) => {
      const x = chart.valToPos(index, "x", true);
      const y = chart.valToPos(Number(row.dataset.score), "y", true);
      const [name, kind] = MARKS[row.dataset.word] ?? ["--soft", "ring"];
      shape(context, kind, x, y, size);
      context.fillStyle = colour(kind === "ring" ? "--paper" : name);
      context.strokeStyle = colour(kind === "ring" ? "--soft" : "--paper");
      context.lineWidth = 1.5 * devicePixelRatio;
      context.fill();
      context.stroke();
    });
    context.restore();
  };

  const range = (rows, data) => {
    const known = data.slice(1).flat().filter((value) => value !== null);
    const least = Math.min(...known);
    const most = Math.max(...known);
    const isShare = least >= 0 && most <= 1;
    const room = Math.max(isShare ? 0.02 : 0, 0.08 * (most - least)) || 0.1 * Math.abs(most);
    return [isShare ? Math.max(0, least - room) : least - room, isShare ? Math.min(1, most + room) : most + room];
  };

  const day = (rows, index) => {
    const row = rows[index];
    return row ? DAY.format(new Date(1000 * row.dataset.at)) : "";
  };

  const isBig = (value) => Math.abs(value) >= 1e6;

  const figure = (_, value) => {
    if (value === null || value === undefined) return "–";
    return isBig(value) ? value.toPrecision(4).replace(/\.?0+e/, "e") : String(Math.round(1e4 * value) / 1e4);
  };

  const ticks = (_, values, axis, space, step) => {
    const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
    return values.map((value) => (values.some(isBig) ? value.toPrecision(3) : value.toFixed(digits)));
  };

  const breadth = (_, said) => Math.max(48, 16 + 7 * Math.max(...(said ?? [""]).map((text) => text.length)));

  const line = (label, options) => ({ label, points: { show: false }, value: figure, ...options });

  // While the pointer is elsewhere, the newest run is told.
  const tellLast = (chart) => {
    if (chart.legend.idx === null || chart.legend.idx === undefined) chart.setLegend({ idx: chart.data[0].length - 1 }, false);
  };

  const options = (holder, rows, data) => ({
    width: holder.clientWidth,
    height: HEIGHT,
    cursor: { y: false, points: { size: 6 } },
    scales: {
      x: { time: false, range: () => [-0.5, Math.max(rows.length - 0.5, 0.5)] },
      y: { range: () => range(rows, data) },
    },
    axes: [
      axis({ space: 70, incrs: [1, 2, 5, 10, 20, 50], values: (_, ticks) => ticks.map((tick) => day(rows, tick)), grid: { show: false } }),
      axis({ size: breadth, space: 36, values: ticks }),
    ],
    bands: [{ series: [1, 2], fill: `${colour("--soft")}2e` }],
    series: [
      { label: "Run of", value: (_, index) => (index === null || index === undefined ? "–" : `${day(rows, index)}${rows[index]?.dataset.word ? `, ${rows[index].dataset.word}` : ""}`) },
      line("high", { width: 0, stroke: "transparent", class: "unsaid" }),
      line("low", { width: 0, stroke: "transparent", class: "unsaid" }),
      line("Baseline", { width: 1.25, stroke: colour("--soft"), dash: [5, 4], class: holder.dataset.mean ? "baseline" : "unsaid" }),
      // As the table has it, which rounds in another way.
      line("Score", { width: 1.5, stroke: colour("--c1"), value: (_, __, ___, index) => rows[index]?.cells[2].textContent ?? "–" }),
    ],
    hooks: { draw: [drawMarks(rows)], setLegend: [tellLast] },
  });

  const open = (rows, chart) => {
    const { idx: index } = chart.cursor;
    if (index !== null && index !== undefined) location.assign(`/evals/runs/${rows[index].dataset.run}`);
  };

  const draw = () => {
    sizes.disconnect();
    charts.splice(0).forEach((chart) => chart.destroy());
    for (const holder of document.querySelectorAll("[data-trend]")) {
      const { rows, data } = read(holder);
      holder.replaceChildren();
      const chart = new uPlot(options(holder, rows, data), data, holder);
      chart.over.addEventListener("click", () => open(rows, chart));
      charts.push(chart);
      sizes.observe(holder);
    }
  };

  const sizes = new ResizeObserver((entries) => {
    for (const { target, contentRect: { width } } of entries) {
      const chart = charts.find((one) => target.contains(one.root));
      if (chart && width > 0) chart.setSize({ width, height: HEIGHT });
    }
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
