// What marks mean: a colour and a mark a code, filled or open by the decoder; and where a run stands on an axis.
const FILLS = ["", "-open", "-open-dot"];
const MEASURED = {
  "run.distance": "measured: distance of the experts",
  "run.coding_loss": "measured: coding loss on the P samples",
  "run.test_coding_loss": "measured: coding loss on test samples",
  "run.samples_nda": "measured: NDA on the P samples, %",
  "run.samples_divergence": "measured: divergence on the P samples",
};
const decoderOf = (item) => item.run.decoder ?? "analytic";

class Marks {
  // They go by all runs, not by those that a filter leaves: a code keeps its colour.
  constructor(data) {
    this.data = data;
    this.done = data.runs.filter((item) => item.state === "finished");
    const told = distinct(["samples", ...this.done.flatMap((item) => Object.keys(item.settings)), "seed"]);
    this.settings = told.filter((key) => this.places(this.done, key).length > 1);
    const sizes = this.settings.filter((key) => this.places(this.done, key).length > 2 || key === "train_seed");
    this.lookOf = (item) => labelOf(item.run.code, this.cell(item), sizes); // a size is a place, not a look
    this.looks = distinct(this.done.map(this.lookOf));
    this.decoders = distinct(this.done.map(decoderOf));
    this.experts = distinct(this.done.flatMap((item) => item.run.experts.map((expert) => expert.name)));
    // What NDA can be drawn against, and what it is at first: a setting that the sweep varies, if there is one.
    this.keys = [...this.settings, ...Object.keys(MEASURED).filter((key) => this.places(this.done, key).length > 1)];
    const swept = sizes.filter((key) => key !== "train_seed" && data.cells.some((cell) => key in cell.variant));
    this.first = swept[0] ?? this.keys.find((key) => key === "run.samples_nda") ?? this.keys[0];
  }

  cell(item) {
    return this.data.cells[item.cell];
  }

  label(item, ...leftOut) {
    return labelOf(nameOf(item.run), this.cell(item), leftOut);
  }

  title(key) {
    return key === "seconds" ? "seconds of encoding" : (MEASURED[key] ?? this.data.axes[key] ?? key);
  }

  place(item, key) {
    if (key === "seconds") return Math.max(item.seconds, 0.01);
    const value = number(key.startsWith("run.") ? item.run[key.slice(4)] : (item.settings[key] ?? item.run[key]));
    return finite(value) ? value : null;
  }

  // All places that runs take, from small to large.
  places(items, key) {
    return distinct(items.map((item) => this.place(item, key)).filter((x) => x !== null)).sort((a, b) => a - b);
  }

  marker(i, size, fill = "") {
    const line = { width: fill ? 1.6 : 0 };
    return { color: COLORS[i % COLORS.length], symbol: MARKS[i % MARKS.length] + fill, size, opacity: 0.85, line };
  }

  ofRun(item, size) {
    const fill = FILLS[this.decoders.indexOf(decoderOf(item)) % FILLS.length];
    return this.marker(this.looks.indexOf(this.lookOf(item)), size, fill);
  }

  ofExpert(name, size) {
    return this.marker(this.experts.indexOf(name), size);
  }

  dash(item) {
    return DASHES[this.decoders.indexOf(decoderOf(item)) % DASHES.length];
  }

  // Entries of a legend: [name, marker].
  lookEntries(items) {
    const shown = this.looks.filter((look) => items.some((item) => this.lookOf(item) === look));
    return [...shown.map((look) => [look, this.marker(this.looks.indexOf(look), 9)]), ...this.decoderEntries()];
  }

  decoderEntries() {
    const named = this.decoders.length > 1 ? this.decoders : [];
    const marker = (i) => ({
      color: "#333",
      size: 9,
      symbol: `circle${FILLS[i % FILLS.length]}`,
      line: { width: 1.6 },
    });
    return named.map((name, i) => [`decoder ${name}`, marker(i)]);
  }
}
