// The table of runs: its columns, its order, and the filters that hold for the charts too.
const NAMED = ["state", "experiment", "code", "decoder", "samples", "seed"];

class Table {
  constructor(changed) {
    this.changed = changed;
    this.sort = { key: null, down: false };
    this.picked = {}; // by key, the values that are shown; all where there are none
    this.words = [];
    $$("search").addEventListener("input", () => {
      this.words = $$("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      this.changed();
    });
    $$("clear").addEventListener("click", () => {
      this.picked = {};
      this.words = [];
      $$("search").value = "";
      this.choices();
      this.changed();
    });
    document.addEventListener("click", (event) => {
      for (const open of document.querySelectorAll("#choices details[open]"))
        if (!open.contains(event.target)) open.open = false;
    });
  }

  take(data) {
    this.data = data;
    const settings = distinct(data.runs.flatMap((item) => Object.keys(item.settings))).filter(
      (key) => key !== "samples",
    );
    this.settings = settings;
    const columns = ["experiment", "code", "decoder", "samples", ...settings, "seed", "nda", "paper", "seconds"];
    const told = columns.filter((key) => data.runs.some((item) => this.value(item, key) != null));
    this.columns = data.runs.some((item) => item.state !== "finished") ? ["state", ...told] : told;
    this.choices();
  }

  value(item, key) {
    if (key === "state") return item.state;
    if (key === "paper") return item.cell === undefined ? null : this.data.cells[item.cell].paper;
    if (key === "seconds") return item.seconds;
    if (key === "decoder") return item.run.decoder ?? "analytic";
    return NAMED.includes(key) || key === "nda" ? item.run[key] : item.settings[key];
  }

  title(key) {
    const units = { nda: "NDA %", paper: "paper %", seconds: "encode s", samples: "P", state: "state" };
    return units[key] ?? this.data.axes[key] ?? key;
  }

  // A list of boxes for every column in which runs differ.
  choices() {
    const open = document.querySelector("#choices details[open]")?.dataset.key;
    const lists = [];
    for (const key of [...NAMED, ...this.settings]) {
      const picked = this.picked[key] ?? []; // what is picked stays to be seen, even when no run has it any more
      const values = distinct([...this.data.runs.map((item) => short(this.value(item, key))), ...picked]).filter(
        (text) => text !== "",
      );
      if (!["experiment", "code", "decoder", "state"].includes(key))
        values.sort((a, b) => compare(number(a) ?? a, number(b) ?? b));
      if (values.length > 1 && values.length <= 40) lists.push(this.choice(key, values, key === open));
    }
    const { name, value } = document.activeElement; // news take no box from under a reader's keys
    $$("choices").replaceChildren(...lists);
    if (name && value)
      document.querySelector(`#choices input[name="${CSS.escape(name)}"][value="${CSS.escape(value)}"]`)?.focus();
  }

  choice(key, values, open) {
    const picked = (this.picked[key] ??= new Set());
    const summary = element("summary");
    const named = () => {
      summary.textContent = this.title(key) + (picked.size ? `: ${picked.size} of ${values.length}` : "");
      summary.classList.toggle("active", picked.size > 0);
    };
    const boxes = values.map((value) => {
      const box = element("input", { type: "checkbox", name: key, value, checked: picked.has(value) });
      box.addEventListener("change", () => {
        if (box.checked) picked.add(value);
        else picked.delete(value);
        named();
        this.changed();
      });
      return element("label", {}, box, ` ${value}`);
    });
    named();
    return element(
      "details",
      { "data-key": key, open },
      summary,
      element("fieldset", { "aria-label": this.title(key) }, ...boxes),
    );
  }

  shown() {
    const active = Object.entries(this.picked).filter(([, values]) => values.size);
    const fits = (item) => {
      if (!active.every(([key, values]) => values.has(short(this.value(item, key))))) return false;
      const text = this.columns
        .map((key) => `${key}=${short(this.value(item, key))}`)
        .join(" ")
        .toLowerCase();
      return this.words.every((word) => text.includes(word));
    };
    const found = this.data.runs.filter(fits);
    const { key, down } = this.sort;
    if (key === null) return found;
    const order = (item) => number(this.value(item, key)) ?? this.value(item, key);
    const [known, unknown] = [found.filter((item) => order(item) != null), found.filter((item) => order(item) == null)];
    known.sort((a, b) => (down ? -1 : 1) * compare(order(a), order(b)));
    return [...known, ...unknown]; // what is not known comes last either way
  }

  draw(items, open) {
    const numeric = (key) =>
      !["experiment", "code", "decoder", "state"].includes(key) &&
      this.data.runs.every((item) => this.value(item, key) == null || number(this.value(item, key)) !== null);
    $$("columns").replaceChildren(
      ...this.columns.map((key) => {
        const button = element("button", { type: "button" }, this.title(key));
        button.addEventListener("click", () => {
          this.sort = { key, down: this.sort.key === key ? !this.sort.down : key === "nda" };
          this.changed();
          document.querySelector(`th[data-key="${CSS.escape(key)}"] button`).focus();
        });
        const order = this.sort.key === key ? (this.sort.down ? "descending" : "ascending") : "none";
        return element(
          "th",
          { scope: "col", "aria-sort": order, "data-key": key, className: numeric(key) ? "number" : "" },
          button,
        );
      }),
      element("th", { scope: "col" }, "command"),
    );
    $$("rows").replaceChildren(...items.map((item) => this.row(item, numeric, open)));
  }

  row(item, numeric, open) {
    const cells = this.columns.map((key) => {
      const value = this.value(item, key);
      if (key === "code") {
        const button = element("button", { type: "button" }, nameOf(item.run).split(" + ")[0]);
        button.addEventListener("click", () => open(item));
        return element("td", { className: "open" }, button);
      }
      if (key === "state") return element("td", {}, element("span", { className: `state ${value}` }, value));
      const told =
        key === "seconds"
          ? seconds(value)
          : key === "nda" || key === "paper"
            ? value == null
              ? ""
              : percent(value)
            : short(value);
      return element("td", { className: numeric(key) ? "number" : "" }, told);
    });
    const button = element(
      "button",
      { type: "button", title: item.command, "aria-label": `Copy the command of ${nameOf(item.run)}` },
      "Copy",
    );
    button.addEventListener("click", () => copy(item.command, button));
    return element("tr", { "data-state": item.state }, ...cells, element("td", {}, button));
  }
}
