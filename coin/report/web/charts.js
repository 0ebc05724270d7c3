// The four charts. A panel an experiment; a colour and a mark a code, filled or open by the decoder.
const FILLS = ["", "-open", "-open-dot"];
const MEASURED = {
  "run.distance": "measured: distance of the experts", "run.coding_loss": "measured: coding loss on the P samples",
  "run.test_coding_loss": "measured: coding loss on test samples", "run.samples_nda": "measured: NDA on the P samples, %",
  "run.samples_divergence": "measured: divergence on the P samples",
};
const NDA = "average NDA, %";
const PAPER = { symbol: "diamond", size: 9, color: "#000", line: { color: "#fff", width: 1 } };

class Charts {
  constructor(details) {
    this.details = details;
    $$("setting").addEventListener("change", () => this.draw(this.items));
  }

  take(data) {
    this.data = data;
    const done = data.runs.filter((item) => item.state === "finished");
    const several = (key) => distinct(done.map((item) => this.place(item, key)).filter((x) => x !== null)).length;
    const settings = distinct(["samples", ...done.flatMap((item) => Object.keys(item.settings)), "seed"]).filter((key) => several(key) > 1);
    this.numeric = settings.filter((key) => several(key) > 2 || key === "train_seed");
    const varied = (key) => data.cells.some((cell) => key in cell.variant) && key !== "train_seed";
    const keys = [...settings, ...Object.keys(MEASURED).filter((key) => several(key) > 1)];
    const before = $$("setting").value;
    const title = (key) => MEASURED[key] ?? data.axes[key] ?? key;
    $$("setting").replaceChildren(...keys.map((key) => element("option", { value: key }, title(key))));
    const kept = keys.includes(before) && this.chosen ? before : settings.find((key) => varied(key) && several(key) > 2) ?? keys.find((key) => key === "run.samples_nda") ?? keys[0];
    if (kept) $$("setting").value = kept;
    this.chosen = true;
    $$("by-setting").hidden = !keys.length;
    // Looks go by all runs, not by those that a filter leaves: a code keeps its colour.
    this.codes = distinct(done.map((item) => this.look(item)));
    this.decoders = distinct(done.map((item) => item.run.decoder ?? "analytic"));
    this.experts = distinct(done.flatMap((item) => item.run.experts.map((expert) => expert.name)));
  }

  cell(item) { return this.data.cells[item.cell]; }
  look(item) { return labelOf(item.run.code, this.cell(item), this.numeric); }
  label(item, ...leftOut) { return labelOf(nameOf(item.run), this.cell(item), leftOut); }

  place(item, key) {
    if (key === "seconds") return Math.max(item.seconds, 0.01);
    const value = number(key.startsWith("run.") ? item.run[key.slice(4)] : item.settings[key] ?? item.run[key]);
    return finite(value) ? value : null;
  }

  marker(item, size) {
    const i = this.codes.indexOf(this.look(item));
    const fill = FILLS[this.decoders.indexOf(item.run.decoder ?? "analytic") % FILLS.length];
    return { color: COLORS[i % COLORS.length], symbol: MARKS[i % MARKS.length] + fill, size, opacity: 0.85, line: { width: fill ? 1.6 : 0 } };
  }

  draw(items, width) {
    this.items = items;
    this.shown = items.filter((item) => item.state === "finished" && finite(item.run.nda));
    this.width = width ?? Math.min($$("by-code").clientWidth, 1460);
    this.experiments = distinct(this.data.runs.filter((item) => this.shown.includes(item)).map((item) => item.run.experiment));
    this.byCode();
    this.against("by-setting", $$("setting").value);
    this.against("by-seconds", "seconds");
    this.byExpert();
  }

  of(experiment) { return this.shown.filter((item) => item.run.experiment === experiment); }
  index(items) { return items.map((item) => this.data.runs.indexOf(item)); }
  inOrder(values, ofItem) { return distinct(this.data.runs.filter((i) => this.shown.includes(i)).map(ofItem)).filter((v) => values.includes(v)); }

  // Points of one look, each of which stands for the runs it is made from.
  points(panel, groups, x, y, marker, title) {
    const custom = groups.map((group) => [title(group[0]), ...this.index(group)]);
    const axes = { xaxis: `x${panel + 1}`, yaxis: `y${panel + 1}` };
    return { type: "scatter", mode: "markers", x: groups.map(x), y: groups.map(y), marker, customdata: custom, hoverinfo: "none", showlegend: false, ...axes };
  }

  legend(entries, y) {
    return entries.map(([name, marker, group]) => ({ type: "scatter", mode: "markers", x: [null], y: [null], name: plain(name), marker, legendgroup: group, hoverinfo: "skip" }));
  }

  looksLegend(codes) {
    const sample = (code) => this.shown.find((item) => this.look(item) === code);
    const entries = codes.map((code) => [code, { ...this.marker(sample(code), 9), symbol: MARKS[this.codes.indexOf(code) % MARKS.length] }, code]);
    return this.legend([...entries, ...this.decoderEntries()]);
  }

  decoderEntries() {
    const shown = this.decoders.length > 1 ? this.decoders : [];
    return shown.map((name) => [`decoder ${name}`, { color: "#333", size: 9, symbol: `circle${FILLS[this.decoders.indexOf(name) % FILLS.length]}`, line: { width: 1.6 } }, `decoder ${name}`]);
  }

  byCode() {
    const row = (item) => labelOf(item.run.code, this.cell(item));
    const rows = this.inOrder(this.shown.map(row), row);
    const decoders = this.decoders.filter((name) => this.shown.some((item) => (item.run.decoder ?? "analytic") === name));
    const height = (item) => rows.indexOf(row(item)) + ((decoders.indexOf(item.run.decoder ?? "analytic") + 0.5) / decoders.length - 0.5) * 0.76;
    const traces = [], papers = [];
    this.experiments.forEach((experiment, panel) => {
      for (const group of this.cells(this.of(experiment))) {
        const marker = this.marker(group[0], 7), title = (item) => `${this.label(item)} on ${experiment}`;
        traces.push({ ...this.points(panel, group.map((item) => [item]), ([item]) => item.run.nda, ([item]) => height(item), marker, title), legendgroup: this.look(group[0]) });
        const line = { symbol: "line-ns", size: 15 / Math.sqrt(decoders.length) + 3, line: { width: 2.5, color: marker.color } };
        if (group.length > 1) traces.push({ ...this.points(panel, [group], (g) => mean(g.map((item) => item.run.nda)), ([item]) => height(item), line, title), legendgroup: this.look(group[0]) });
        const paper = this.cell(group[0]).paper;
        if (paper !== null) papers.push({ ...this.points(panel, [group], () => paper, ([item]) => height(item), PAPER, (item) => `the paper's ${item.run.code} on ${experiment}: ${percent(paper)} %`), legendgroup: "paper" });
      }
    });
    const entries = [...this.decoderEntries(), ...(papers.length ? [["the paper", PAPER, "paper"]] : [])];
    this.rows("by-code", rows, 26 + 10 * (decoders.length - 1), [...traces, ...papers, ...this.legend(entries)], NDA);
  }

  byExpert() {
    const rows = this.inOrder(this.shown.map((item) => this.label(item)), (item) => this.label(item));
    const traces = [], papers = [];
    const marker = (name, size) => ({ color: COLORS[this.experts.indexOf(name) % COLORS.length], symbol: MARKS[this.experts.indexOf(name) % MARKS.length], size, opacity: 0.85 });
    this.experiments.forEach((experiment, panel) => {
      for (const group of this.cells(this.of(experiment))) {
        const y = rows.indexOf(this.label(group[0]));
        const names = group[0].run.experts.map((expert) => expert.name);
        const of = (item, i) => item.run.experts[i]?.nda;
        const means = names.map((_, i) => mean(group.map((item) => of(item, i)).filter(finite))).filter(finite);
        traces.push({ type: "scatter", mode: "lines", x: [Math.min(...means), Math.max(...means)], y: [y, y], line: { color: "#bbb", width: 4 }, hoverinfo: "skip", showlegend: false, xaxis: `x${panel + 1}`, yaxis: `y${panel + 1}` });
        names.forEach((name, i) => {
          const known = group.filter((item) => finite(of(item, i))).map((item) => [item]);
          const title = (item) => `${name} by ${this.label(item)} on ${experiment}: ${percent(of(item, i))} %`;
          traces.push({ ...this.points(panel, known, ([item]) => of(item, i), () => y, marker(name, 7), title), legendgroup: name });
          const paper = this.cell(group[0]).papers[i];
          const open = { symbol: "diamond-open", size: 10, color: marker(name).color, line: { width: 2 } };
          if (paper != null) papers.push({ ...this.points(panel, [group], () => paper, () => y, open, (item) => `the paper's ${name} by ${item.run.code}: ${percent(paper)} %`), legendgroup: "paper" });
        });
      }
    });
    const names = this.experts.filter((name) => this.shown.some((item) => item.run.experts.some((expert) => expert.name === name)));
    const entries = names.map((name) => [name, marker(name, 9), name]);
    if (papers.length) entries.push(["the paper", { symbol: "diamond-open", size: 10, color: "#333", line: { width: 2 } }, "paper"]);
    this.rows("by-expert", rows, 20, [...traces, ...papers, ...this.legend(entries)], "NDA of an expert, %");
  }

  against(id, key) {
    const traces = [], ticks = {};
    const places = (items) => distinct(items.map((item) => this.place(item, key)).filter((x) => x !== null)).sort((a, b) => a - b);
    const all = places(this.shown), log = all[0] > 0 && all.at(-1) / all[0] >= 10;  // in all panels or in none
    this.experiments.forEach((experiment, panel) => {
      const items = this.of(experiment), placed = items.filter((item) => this.place(item, key) !== null);
      const xs = places(placed);
      ticks[panel] = { wide: xs.at(-1) / xs[0] >= 100, values: key !== "seconds" && xs.length > 1 && xs.length <= 8 ? xs : null };
      for (const label of distinct(placed.map((item) => this.label(item, key)))) {
        const own = this.cells(placed.filter((item) => this.label(item, key) === label)).sort((a, b) => this.place(a[0], key) - this.place(b[0], key));
        const first = own[0][0], group = { legendgroup: this.look(first) }, axes = { xaxis: `x${panel + 1}`, yaxis: `y${panel + 1}` };
        const dash = DASHES[this.decoders.indexOf(first.run.decoder ?? "analytic") % DASHES.length];
        if (key in this.cell(first).variant && own.length > 1) traces.push({ type: "scatter", mode: "lines", x: own.map(([item]) => this.place(item, key)), y: own.map((cell) => mean(cell.map((item) => item.run.nda))), line: { color: this.marker(first).color, dash, width: 1.6 }, hoverinfo: "skip", showlegend: false, ...group, ...axes });
        traces.push({ ...this.points(panel, own.flat().map((item) => [item]), ([item]) => this.place(item, key), ([item]) => item.run.nda, this.marker(first, 8), (item) => `${this.label(item)} on ${experiment}`), ...group });
      }
    });
    const codes = this.codes.filter((code) => this.shown.some((item) => this.look(item) === code));
    const title = key === "seconds" ? "seconds of encoding" : (MEASURED[key] ?? this.data.axes[key] ?? key).replace("measured: ", "");
    const layout = this.panels({ each: 250, gap: 58, left: 58, x: title, y: NDA });
    for (const [panel, { wide, values }] of Object.entries(ticks)) {
      Object.assign(layout[`xaxis${+panel + 1}`], log ? { type: "log", dtick: wide ? 1 : "D2", minor: { ticks: "outside" } } : {});
      if (values) Object.assign(layout[`xaxis${+panel + 1}`], { tickmode: "array", tickvals: values, ticktext: values.map(short), minor: {} });
    }
    this.show(id, [...traces, ...this.looksLegend(codes)], layout);
  }

  // Runs that differ in their draw of samples alone.
  cells(items) { return distinct(items.map((item) => item.cell)).sort((a, b) => a - b).map((cell) => items.filter((item) => item.cell === cell)); }

  rows(id, rows, each, traces, x) {
    const room = Math.floor(Math.min(this.width * 0.42, 330) / 6.6);
    const cut = (text) => plain(text.length > room ? `${text.slice(0, room - 1)}…` : text);
    const left = 14 + 6.6 * Math.min(room, Math.max(...rows.map((row) => row.length), 4));
    const layout = this.panels({ each: 30 + each * rows.length, gap: 22, left, x, shared: true });
    this.experiments.forEach((_, panel) => {
      const axis = layout[`yaxis${panel + 1}`];
      Object.assign(axis, { range: [rows.length - 0.4, -0.6], tickvals: rows.map((_, i) => i), ticktext: rows.map(cut), showticklabels: panel % layout.meta.columns === 0, zeroline: false });
    });
    this.show(id, traces, layout);
  }

  // Axes for a panel an experiment, as many beside one another as there is room for.
  panels({ each, gap, left, x, y = "", shared = false }) {
    const count = this.experiments.length, right = 14, top = 26, between = 64, bottom = 50;
    const room = Math.max(1, Math.floor((this.width - left - right + gap) / ((shared ? 190 : 250) + gap)));
    const lines = Math.ceil(count / room) || 1;
    const columns = Math.ceil(count / lines) || 1;
    const inner = this.width - left - right, high = lines * each + (lines - 1) * between;
    const legend = { orientation: "h", x: 0, xanchor: "left", y: -bottom / high, yanchor: "top", font: { size: 12 }, itemsizing: "constant" };
    const touch = matchMedia("(pointer: coarse)").matches;
    const layout = { width: this.width, margin: { l: left, r: right, t: top, b: bottom, autoexpand: true }, height: high + top + bottom, annotations: [], legend, hovermode: "closest",
      dragmode: touch ? false : "zoom", font: { family: "system-ui, sans-serif", size: 12, color: "#1a1a1a" }, paper_bgcolor: "#fff", plot_bgcolor: "#fff", meta: { columns } };
    const wide = (inner - (columns - 1) * gap) / columns;
    this.experiments.forEach((experiment, panel) => {
      const column = panel % columns, line = Math.floor(panel / columns);
      const x0 = (column * (wide + gap)) / inner, y1 = 1 - (line * (each + between)) / high;
      const look = { gridcolor: "#e4e4e4", linecolor: "#999", zeroline: false, showline: true, fixedrange: touch, automargin: false };
      const last = panel + columns >= count;
      layout[`xaxis${panel + 1}`] = { ...look, domain: [x0, x0 + wide / inner], anchor: `y${panel + 1}`, title: { text: last ? plain(x) : "", standoff: 8 } };
      layout[`yaxis${panel + 1}`] = { ...look, domain: [y1 - each / high, y1], anchor: `x${panel + 1}`, title: { text: column === 0 ? y : "", standoff: 6 } };
      layout.annotations.push({ text: `<b>${plain(experiment)}</b>`, xref: "paper", yref: "paper", x: x0, xanchor: "left", y: y1, yanchor: "bottom", showarrow: false });
    });
    return layout;
  }

  show(id, traces, layout) {
    const plot = document.querySelector(`#${id} .plot`);
    if (!this.shown.length) {
      Plotly.purge(plot);
      return plot.replaceChildren(element("p", { className: "nothing" }, "No finished run to show."));
    }
    if (plot.querySelector(".nothing")) plot.replaceChildren();
    const legend = traces.filter((trace) => trace.x.length === 1 && trace.x[0] === null).length;
    const lines = Math.ceil(legend / Math.max(1, Math.floor(this.width / 170)));
    layout.height += 22 * lines + 8;
    layout.margin.b += 22 * lines + 8;
    Plotly.react(plot, traces, layout, { displaylogo: false, displayModeBar: false });
    if (plot.dataset.listens) return;
    plot.dataset.listens = "yes";
    const chosen = (event) => event.points[0]?.customdata;
    plot.on("plotly_hover", (event) => {
      const [title, ...numbers] = chosen(event) ?? [];
      if (title) this.details.card(numbers.map((i) => this.data.runs[i]), title, event.event);
    });
    plot.on("plotly_click", (event) => chosen(event) && setTimeout(() => this.details.open(this.data.runs[chosen(event)[1]])));
  }
}
