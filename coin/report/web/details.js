// What a run tells: a card beside a point, and all of it in a dialog.
class Details {
  constructor() {
    $$("close").addEventListener("click", () => $$("details").close());
    $$("details").addEventListener("click", (event) => event.target === $$("details") && $$("details").close());
    $$("card-copy").addEventListener("click", () => copy($$("card-command").textContent, $$("card-copy")));
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
    document.addEventListener("click", (event) => $$("card").contains(event.target) || this.hide());
  }

  // Beside the point, and inside the window whatever its width.
  card(items, title, event) {
    const item = items[0];
    $$("card-title").textContent = title;
    $$("card-facts").textContent = items.length > 1 ? average(items) : facts(item);
    $$("card-command").textContent = item.command;
    const card = $$("card");
    card.hidden = false;
    const room = document.documentElement.clientWidth - card.offsetWidth - 8;
    card.style.left = `${Math.max(4, Math.min(event.clientX + 14, room)) + window.scrollX}px`;
    const below = event.clientY + 14 + card.offsetHeight < window.innerHeight;
    card.style.top = `${(below ? event.clientY + 14 : Math.max(4, event.clientY - card.offsetHeight - 14)) + window.scrollY}px`;
  }

  hide() {
    $$("card").hidden = true;
  }

  open(item) {
    this.hide();
    const run = item.run;
    $$("details-title").textContent = `${nameOf(run)} on ${run.experiment}, seed ${run.seed}`;
    const button = element("button", { type: "button" }, "Copy command");
    button.addEventListener("click", () => copy(item.command, button));
    const parts = [
      element("p", {}, element("span", { className: `state ${item.state}` }, item.state), ` ${item.folder ?? ""}`),
    ];
    parts.push(element("pre", { className: "command" }, item.command), button);
    if (item.error) parts.push(heading("Why it failed"), element("pre", { className: "error" }, item.error));
    if (item.since) parts.push(element("p", {}, `Running since ${new Date(item.since * 1000).toLocaleTimeString()}.`));
    if (run.experts.length) parts.push(heading("Experts"), records(run.experts));
    parts.push(...pairs("Hyperparameters", run.hyperparameters));
    if (run.candidates?.length > 1) {
      const chosen = (candidate) =>
        Object.entries(run.hyperparameters).every(([key, value]) => candidate[key] === value);
      parts.push(heading("Candidates, judged on the P samples"), records(run.candidates, chosen));
    }
    parts.push(
      ...pairs("Seconds", run.seconds),
      ...pairs("Settings", item.settings),
      ...pairs("Overrides", run.overrides),
    );
    if (item.config && Object.keys(item.config).length) parts.push(folded("Config", item.config));
    if (item.state === "finished") parts.push(folded("Everything in results.json", run));
    $$("details-body").replaceChildren(...parts);
    $$("details").showModal();
    $$("details").scrollTop = 0;
  }
}

function average(items) {
  const ndas = items.map((item) => item.run.nda);
  const each = items.map((item) => `${percent(item.run.nda)} (seed ${item.run.seed})`).join(", ");
  return `ours: ${percent(mean(ndas))} ± ${percent(deviation(ndas))} %, from ${each}. The command of the first:`;
}

function facts(item) {
  const settings = Object.entries(item.settings).map(([key, value]) => `${key}=${short(value)}`);
  return [
    `NDA ${percent(item.run.nda)} %`,
    `P=${item.run.samples}`,
    ...settings,
    `seed=${item.run.seed}`,
    `${seconds(item.seconds)} s`,
  ].join(" · ");
}

const heading = (text) => element("h3", {}, text);
const folded = (title, value) =>
  element("details", {}, element("summary", {}, title), element("pre", {}, JSON.stringify(value, null, 2)));
const TITLES = {
  nda: "NDA %",
  accuracy: "accuracy %",
  decoded_accuracy: "decoded accuracy %",
  own_classes_nda: "NDA % among own classes",
  agreement: "agreement %",
};

function records(rows, chosen = () => false) {
  const keys = distinct(rows.flatMap(Object.keys));
  const head = element(
    "tr",
    {},
    ...keys.map((key) => element("th", { scope: "col" }, TITLES[key] ?? key.replaceAll("_", " "))),
  );
  const body = rows.map((row) =>
    element(
      "tr",
      { className: chosen(row) ? "chosen" : "" },
      ...keys.map((key) => {
        const told = key in TITLES && row[key] != null ? percent(row[key]) : short(row[key]);
        return element("td", { className: finite(row[key]) ? "number" : "" }, told);
      }),
    ),
  );
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

function pairs(title, values) {
  const entries = Object.entries(values ?? {});
  if (!entries.length) return [];
  const rows = entries.map(([key, value]) =>
    element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, short(value))),
  );
  return [heading(title), element("table", {}, element("tbody", {}, ...rows))];
}
