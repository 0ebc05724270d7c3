// The page itself: one state, drawn again when a reader filters or news come in.
const source = $$("data");
let data = JSON.parse(source.textContent);
const details = new Details();
const charts = new Charts(details);
const table = new Table(draw);
let later;

function draw() {
  const items = table.shown();
  table.draw(items, (item) => details.open(item));
  $$("count").textContent =
    items.length === data.runs.length ? `${items.length} runs` : `${items.length} of ${data.runs.length} runs`;
  clearTimeout(later); // who types fast waits for the last letter only
  later = setTimeout(() => charts.draw(items), 60);
}

function take(fresh) {
  data = fresh;
  const count = (values, one) => `${values.length} ${one}${values.length === 1 ? "" : "s"}`;
  const states = ["finished", "running", "failed", "interrupted", "unfinished"];
  const told = states
    .map((state) => [data.runs.filter((item) => item.state === state).length, state])
    .filter(([n]) => n);
  const experiments = distinct(data.runs.map((item) => item.run.experiment));
  const codes = distinct(data.runs.map((item) => item.run.code));
  const parts = data.runs.length
    ? [
        `${count(data.runs, "run")} (${told.map(([n, state]) => `${n} ${state}`).join(", ")})`,
        count(experiments, "experiment"),
        count(codes, "code"),
      ]
    : ["no runs yet"];
  if (data.superseded) parts.push(`${data.superseded} earlier runs of the same settings and seed are left out`);
  $$("summary").textContent = parts.join(" · ") + ".";
  for (const part of document.querySelectorAll(".paper")) part.hidden = !data.cells.some((cell) => cell.paper !== null);
  table.take(data);
  charts.take(data);
  draw();
}

function say(text, problem = false) {
  if ($$("news").textContent !== text) $$("news").textContent = text;
  $$("news").classList.toggle("problem", problem);
}

// A reader keeps the order, the filters and an open dialog: only the data are new.
async function refresh() {
  let pause = 1000;
  try {
    const answer = await fetch(`data.json?since=${data.stamp}`, { cache: "no-store" });
    const fresh = await answer.json();
    if (fresh) take(fresh);
    say(
      data.problem ? `Not all can be read: ${data.problem}` : "Live: this page follows the folder.",
      Boolean(data.problem),
    );
  } catch {
    say("The watch has ended; this is what was seen last.", true);
    pause = 5000;
  }
  setTimeout(refresh, pause);
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) draw();
  width = window.innerWidth;
});
window.addEventListener("beforeprint", () => charts.draw(table.shown(), 700)); // the width of a sheet, in pixels
window.addEventListener("afterprint", draw);
take(data);
if (JSON.parse(source.dataset.live)) refresh();
