// The four charts.
const NDA = "average NDA, %";
const PAPER = { symbol: "diamond", size: 9, color: "#000", line: { color: "#fff", width: 1 } };
const ndaOf = (item) => item.run.nda;

class Charts extends Panels {
  constructor(details) {
    super(details);
    $$("setting").addEventListener("change", () => this.draw(this.items));
  }

  take(data) {
    const before = this.marks && $$("setting").value;
    this.data = data;
    data.runs.forEach((item, i) => (item.index = i));
    this.marks = new Marks(data);
    const { keys, first } = this.marks;
    $$("setting").replaceChildren(...keys.map((key) => element("option", { value: key }, this.marks.title(key))));
    $$("setting").value = keys.includes(before) ? before : (first ?? "");
    $$("by-setting").hidden = !keys.length;
  }

  draw(items, width) {
    this.items = items;
    const kept = new Set(items);
    this.shown = this.marks.done.filter((item) => kept.has(item) && finite(item.run.nda)); // whatever the table's order
    this.width = width ?? Math.min($$("by-code").clientWidth, 1460);
    this.experiments = distinct(this.shown.map((item) => item.run.experiment));
    this.byCode();
    if (this.marks.keys.length) this.against("by-setting", $$("setting").value);
    this.against("by-seconds", "seconds");
    this.byExpert();
  }

  // Runs that differ in their draw of samples alone, by panel.
  *cells() {
    for (const [panel, experiment] of this.experiments.entries()) {
      const items = this.shown.filter((item) => item.run.experiment === experiment);
      for (const cell of distinct(items.map((item) => item.cell))) {
        yield [panel, experiment, items.filter((item) => item.cell === cell)];
      }
    }
  }

  byCode() {
    const { marks } = this;
    const row = (item) => labelOf(item.run.code, marks.cell(item));
    const rows = distinct(this.shown.map(row));
    const decoders = marks.decoders.filter((name) => this.shown.some((item) => decoderOf(item) === name));
    const tall = 15 / Math.sqrt(decoders.length) + 3;
    const traces = [];
    const papers = [];
    for (const [panel, experiment, group] of this.cells()) {
      const [item] = group;
      const look = marks.lookOf(item);
      const marker = marks.ofRun(item, 7);
      const y = rows.indexOf(row(item)) + ((decoders.indexOf(decoderOf(item)) + 0.5) / decoders.length - 0.5) * 0.76;
      const title = `${marks.label(item)} on ${experiment}`;
      traces.push(
        this.points(
          panel,
          look,
          marker,
          group.map((one) => ({ x: ndaOf(one), y, title, of: [one] })),
        ),
      );
      const line = { symbol: "line-ns", size: tall, line: { width: 2.5, color: marker.color } };
      if (group.length > 1)
        traces.push(this.points(panel, look, line, [{ x: mean(group.map(ndaOf)), y, title, of: group }]));
      const x = marks.cell(item).paper;
      const told = `the paper's ${item.run.code} on ${experiment}: ${percent(x)} %`;
      if (x !== null) papers.push(this.points(panel, "the paper", PAPER, [{ x, y, title: told, of: group }]));
    }
    const entries = [...marks.decoderEntries(), ...(papers.length ? [["the paper", PAPER]] : [])];
    this.rows("by-code", rows, 26 + 10 * (decoders.length - 1), [...traces, ...papers, ...this.legend(entries)], NDA);
  }

  byExpert() {
    const { marks } = this;
    const rows = distinct(this.shown.map((item) => marks.label(item)));
    const traces = [];
    const papers = [];
    const open = (color) => ({ symbol: "diamond-open", size: 10, color, line: { width: 2 } });
    for (const [panel, experiment, group] of this.cells()) {
      const [item] = group;
      const y = rows.indexOf(marks.label(item));
      const found = item.run.experts.map(({ name }, i) => {
        const known = group.filter((one) => finite(one.run.experts[i]?.nda));
        return { name, i, known, ndas: known.map((one) => one.run.experts[i].nda) };
      });
      const means = found.filter(({ ndas }) => ndas.length).map(({ ndas }) => mean(ndas));
      traces.push(this.line(panel, "", { color: "#bbb", width: 4 }, [Math.min(...means), Math.max(...means)], [y, y]));
      for (const { name, i, known, ndas } of found) {
        const title = (nda) => `${name} by ${marks.label(item)} on ${experiment}: ${percent(nda)} %`;
        const spots = known.map((one, k) => ({ x: ndas[k], y, title: title(ndas[k]), of: [one] }));
        traces.push(this.points(panel, name, marks.ofExpert(name, 7), spots));
        const x = marks.cell(item).papers[i];
        const told = `the paper's ${name} by ${item.run.code}: ${percent(x)} %`;
        const marker = open(marks.ofExpert(name).color);
        if (x != null) papers.push(this.points(panel, "the paper", marker, [{ x, y, title: told, of: group }]));
      }
    }
    const names = marks.experts.filter((name) =>
      this.shown.some((item) => item.run.experts.some((e) => e.name === name)),
    );
    const entries = names.map((name) => [name, marks.ofExpert(name, 9)]);
    if (papers.length) entries.push(["the paper", open("#333")]);
    this.rows("by-expert", rows, 20, [...traces, ...papers, ...this.legend(entries)], "NDA of an expert, %");
  }

  // A line for each combination of everything else, where the sweep has set the key.
  against(id, key) {
    const { marks } = this;
    const traces = [];
    const lines = new Map();
    for (const [panel, experiment, group] of this.cells()) {
      const placed = group.filter((item) => marks.place(item, key) !== null);
      if (!placed.length) continue;
      const [item] = placed;
      const spot = (one) => ({
        x: marks.place(one, key),
        y: ndaOf(one),
        title: `${marks.label(one)} on ${experiment}`,
        of: [one],
      });
      traces.push(this.points(panel, marks.lookOf(item), marks.ofRun(item, 8), placed.map(spot)));
      const name = JSON.stringify([panel, marks.label(item, key)]);
      if (key in marks.cell(item).variant)
        lines.set(name, [...(lines.get(name) ?? []), [panel, item, mean(placed.map(ndaOf))]]);
    }
    for (const line of lines.values()) {
      const [[panel, item]] = line;
      const points = line.map(([, one, y]) => [marks.place(one, key), y]).sort(([a], [b]) => a - b);
      const look = { color: marks.ofRun(item).color, dash: marks.dash(item), width: 1.6 };
      if (points.length > 1)
        traces.unshift(
          this.line(
            panel,
            marks.lookOf(item),
            look,
            points.map(([x]) => x),
            points.map(([, y]) => y),
          ),
        );
    }
    const xs = marks.places(this.shown, key);
    const layout = this.panels({ each: 250, gap: 58, left: 58, x: marks.title(key).replace("measured: ", ""), y: NDA });
    const common = key.startsWith("run.") ? {} : { matches: "x" }; // settings and seconds share an axis, losses do not
    for (const panel of this.experiments.keys()) {
      Object.assign(layout[`xaxis${panel + 1}`], panel ? common : {}, this.ticks(xs, key));
    }
    this.show(id, [...traces, ...this.legend(marks.lookEntries(this.shown))], layout);
  }
}
