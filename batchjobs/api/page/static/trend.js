// Curves of suites, out of the tables that have the same numbers. Runs are evenly spaced: a night
// that was missed is no gap in the score.
"use strict";

(() => {
  const HEIGHT = 240;
  const SIZE = 4.5;
  const MARKS = { ok: ["--good", "dot"], worse: ["--bad", "down"], better: ["--accent", "up"], "no verdict": ["--warn", "diamond"] };
  const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  const charts = [];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const read = (holder) => {
    const rows = [...document.getElementById(holder.dataset.trend).tBodies[0].rows];
    const numbers = (name) => rows.map((row) => Number(row.dataset[name]));
    const { mean, low, high } = holder.dataset;
    const flat = (value) => rows.map(() => (value === undefined ? null : Number(value)));
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
    const known = [...rows.flatMap((row) => [Number(row.dataset.low), Number(row.dataset.high)]), ...data[1], ...data[2]].filter((value) => value !== null);
    const least = Math.min(...known);
    const most = Math.max(...known);
    const room = Math.max(0.02, 0.08 * (most - least));
    const isShare = least >= 0 && most <= 1;
    return [isShare ? Math.max(0, least - room) : least - room, isShare ? Math.min(1, most + room) : most + room];
  };

  const axis = (options) => ({
    stroke: colour("--soft"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    ...options,
  });

  const day = (rows, index) => {
    const row = rows[index];
    return row ? DAY.format(new Date(1000 * row.dataset.at)) : "";
  };

  const figure = (_, value) => (value === null || value === undefined ? "–" : String(Math.round(1e4 * value) / 1e4));

  const line = (label, options) => ({ label, points: { show: false }, value: figure, ...options });

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
      axis({ size: 48, values: (_, ticks) => ticks.map((tick) => tick.toFixed(2)) }),
    ],
    bands: [{ series: [1, 2], fill: `${colour("--soft")}2e` }],
    series: [
      { label: "Run of", value: (_, index) => (index === null || index === undefined ? "–" : `${day(rows, index)}${rows[index]?.dataset.word ? `, ${rows[index].dataset.word}` : ""}`) },
      line("high", { width: 0, stroke: "transparent", class: "unsaid" }),
      line("low", { width: 0, stroke: "transparent", class: "unsaid" }),
      line("Baseline", { width: 1.25, stroke: colour("--soft"), dash: [5, 4], class: holder.dataset.mean ? "baseline" : "unsaid" }),
      line("Score", { width: 1.5, stroke: colour("--c1") }),
    ],
    hooks: { draw: [drawMarks(rows)] },
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
