// How things look and read: colours, marks, numbers, names. Okabe and Ito's colours can be told apart by everybody; with
// eight marks beside seven colours, 56 things look different in print without colour too.
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666"];
const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "star"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

const $$ = (id) => document.getElementById(id);
const distinct = (values) => [...new Set(values)];
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const finite = (value) => typeof value === "number" && Number.isFinite(value);
const compare = (a, b) =>
  finite(a) && finite(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

function deviation(values) {
  const middle = mean(values);
  return Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (values.length - 1));
}

// A setting as a place on an axis: a number, or the first of a list (β).
function number(value) {
  if (typeof value === "number") return value;
  const text = String(value ?? "")
    .replace(/^\[|\]$/g, "")
    .split(",")[0]
    .trim();
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : null;
}

function short(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return typeof value === "object" ? JSON.stringify(value) : String(value);
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6
    ? value.toExponential(2).replace(/\.?0+e/, "e")
    : String(+value.toPrecision(5));
}

const percent = (value) => (finite(value) ? value.toFixed(2) : "–");
const seconds = (value) => (finite(value) ? value.toFixed(value < 100 ? 1 : 0) : "");

// Plotly reads some tags in its texts; what comes from runs has none.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function nameOf(run) {
  return run.decoder && run.decoder !== "analytic" ? `${run.code} + ${run.decoder}` : run.code;
}

// What tells a cell from others, but for some settings.
function labelOf(name, cell, leftOut = []) {
  const settings = Object.entries(cell.variant).filter(([key]) => !leftOut.includes(key));
  return [name, ...settings.map(([key, value]) => `${key}=${value}`)].join(" ");
}

// An element with its text and children; text is never taken for HTML.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // a page from disk may not be allowed to
    const field = element("textarea", { value: text });
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  const before = button.dataset.label ?? (button.dataset.label = button.textContent);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
}
