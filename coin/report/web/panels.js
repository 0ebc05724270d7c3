// Where charts are drawn: a panel an experiment, its axes, and what happens when a reader points at something.
class Panels {
  constructor(details) {
    this.details = details;
    this.experiments = []; // those that are shown
    this.width = 0;
  }

  // Points of one look, each of which stands for the runs it is made from.
  points(panel, group, marker, spots) {
    const of = (key) => spots.map((spot) => spot[key]);
    const customdata = spots.map((spot) => [spot.title, ...spot.of.map((item) => item.index)]);
    return {
      ...this.trace(panel, group),
      mode: "markers",
      x: of("x"),
      y: of("y"),
      marker,
      customdata,
      hoverinfo: "none",
    };
  }

  line(panel, group, line, x, y) {
    return { ...this.trace(panel, group), mode: "lines", x, y, line, hoverinfo: "skip" };
  }

  trace(panel, group) {
    const axes = { xaxis: `x${panel + 1}`, yaxis: `y${panel + 1}` };
    return { type: "scatter", ...axes, legendgroup: plain(group), showlegend: false };
  }

  // [name, marker]: a click on a name hides what has it.
  legend(entries) {
    const nowhere = { x: [null], y: [null], hoverinfo: "skip", showlegend: true };
    return entries.map(([name, marker]) => ({
      ...this.line(0, name),
      ...nowhere,
      mode: "markers",
      name: plain(name),
      marker,
    }));
  }

  // A logarithmic axis where numbers span a decade, and marks at what was run, rather than at round numbers, if that is little.
  ticks(xs, key) {
    const log = xs[0] > 0 && xs.at(-1) / xs[0] >= 10;
    const decades = [...Array(24).keys()].flatMap((i) => [1, 2, 5].map((digit) => +`${digit}e${i - 12}`));
    const round = decades.filter(
      (x) => x >= xs[0] / 2 && x <= xs.at(-1) * 2 && (xs.at(-1) / xs[0] < 100 || /^1/.test(x.toExponential())),
    );
    const few = key !== "seconds" && !key.startsWith("run.") && xs.length > 1 && xs.length <= 8;
    const values = few ? xs : log ? round : null;
    return {
      ...(log ? { type: "log" } : {}),
      ...(values ? { tickmode: "array", tickvals: values, ticktext: values.map(short) } : {}),
    };
  }

  rows(id, rows, each, traces, x) {
    const room = Math.floor(Math.min(this.width * 0.42, 330) / 6.6);
    const cut = (text) => plain(text.length > room ? `${text.slice(0, room - 1)}…` : text);
    const left = 14 + 6.6 * Math.min(room, Math.max(...rows.map((row) => row.length), 4));
    const layout = this.panels({ each: 30 + each * rows.length, gap: 22, left, x, shared: true });
    this.experiments.forEach((_, panel) => {
      const axis = layout[`yaxis${panel + 1}`];
      Object.assign(axis, {
        range: [rows.length - 0.4, -0.6],
        tickvals: rows.map((_, i) => i),
        ticktext: rows.map(cut),
        showticklabels: panel % layout.meta.columns === 0,
        zeroline: false,
      });
    });
    this.show(id, traces, layout);
  }

  // Axes for a panel an experiment, as many beside one another as there is room for.
  panels({ each, gap, left, x, y = "", shared = false }) {
    const count = this.experiments.length;
    const [top, right, bottom, between] = [26, 14, 50, 64]; // pixels
    const room = Math.max(1, Math.floor((this.width - left - right + gap) / ((shared ? 190 : 250) + gap)));
    const lines = Math.ceil(count / room) || 1;
    const columns = Math.ceil(count / lines) || 1;
    const inner = this.width - left - right;
    const high = lines * each + (lines - 1) * between;
    const legend = {
      orientation: "h",
      x: 0,
      xanchor: "left",
      y: -bottom / high,
      yanchor: "top",
      itemsizing: "constant",
    };
    const touch = matchMedia("(pointer: coarse)").matches;
    const layout = {
      width: this.width,
      margin: { l: left, r: right, t: top, b: bottom },
      height: high + top + bottom,
      annotations: [],
      legend,
      hovermode: "closest",
      dragmode: touch ? false : "zoom",
      font: { family: "system-ui, sans-serif", size: 12, color: "#1a1a1a" },
      paper_bgcolor: "#fff",
      plot_bgcolor: "#fff",
      meta: { columns },
    };
    const wide = (inner - (columns - 1) * gap) / columns;
    this.experiments.forEach((experiment, panel) => {
      const [column, line] = [panel % columns, Math.floor(panel / columns)];
      const [x0, y1] = [(column * (wide + gap)) / inner, 1 - (line * (each + between)) / high];
      const look = { gridcolor: "#e4e4e4", linecolor: "#999", zeroline: false, showline: true, fixedrange: touch };
      const last = panel + columns >= count;
      layout[`xaxis${panel + 1}`] = {
        ...look,
        domain: [x0, x0 + wide / inner],
        anchor: `y${panel + 1}`,
        title: { text: last ? plain(x) : "", standoff: 8 },
      };
      layout[`yaxis${panel + 1}`] = {
        ...look,
        domain: [y1 - each / high, y1],
        anchor: `x${panel + 1}`,
        title: { text: column === 0 ? y : "", standoff: 6 },
      };
      const place = { xref: "paper", yref: "paper", x: x0, xanchor: "left", y: y1, yanchor: "bottom" };
      layout.annotations.push({ ...place, text: `<b>${plain(experiment)}</b>`, showarrow: false });
    });
    return layout;
  }

  show(id, traces, layout) {
    const plot = document.querySelector(`#${id} .plot`);
    if (!this.shown.length) {
      Plotly.purge(plot);
      delete plot.dataset.listens;
      return plot.replaceChildren(element("p", { className: "nothing" }, "No finished run to show."));
    }
    if (plot.querySelector(".nothing")) plot.replaceChildren();
    const entries = traces.filter((trace) => trace.showlegend).length;
    const below = 8 + 22 * Math.ceil(entries / Math.max(1, Math.floor(this.width / 170)));
    layout.height += below;
    layout.margin.b += below;
    Plotly.react(plot, traces, layout, { displaylogo: false, displayModeBar: false });
    if (plot.dataset.listens) return;
    plot.dataset.listens = "yes";
    const chosen = (event) => event.points[0]?.customdata ?? [];
    plot.on("plotly_hover", (event) => {
      const [title, ...numbers] = chosen(event);
      const items = numbers.map((i) => this.data.runs[i]);
      if (items.length) this.details.card(items, title, event.event);
    });
    plot.on("plotly_click", (event) => {
      const item = this.data.runs[chosen(event)[1]];
      if (item) setTimeout(() => this.details.open(item)); // after the click has hidden the card
    });
  }
}
