// Two charts as SVG: every answer over time, and the tail.
const HEIGHT = 300, LEFT = 46, BOTTOM = 26, TOP = 8, RIGHT = 10;
const SOURCES = ['exact', 'decoded'];

function element(name, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function percentile(sorted, q) {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * q / 100) - 1)] : undefined;
}

// Powers of ten with 2 and 5 between them, from below the least to above the greatest.
function ticks(least, greatest) {
  const found = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(greatest)); power++) {
    for (const step of [1, 2, 5]) found.push(step * 10 ** power);
  }
  const first = Math.max(0, found.findIndex(tick => tick > least) - 1);
  const last = found.findIndex(tick => tick >= greatest);
  return found.slice(first, last < 0 ? undefined : last + 1);
}

function logarithmic(marks, from, to) {
  const low = Math.log10(marks[0]), high = Math.log10(marks[marks.length - 1]);
  return value => from + (Math.log10(Math.max(value, marks[0])) - low) / (high - low || 1) * (to - from);
}

function sheet(place) {
  const width = Math.max(place.clientWidth, 200), drawn = element('svg', {viewBox: `0 0 ${width} ${HEIGHT}`});
  place.replaceChildren(drawn);
  return [drawn, width];
}

function drawLatencies(place, recent, now) {
  const [drawn, width] = sheet(place), seconds = 60;
  const shown = recent.filter(([at]) => at > now - seconds);
  if (!shown.length) return drawn.append(element('text', {x: LEFT, y: 40}, 'no answers in the last minute'));
  const values = shown.map(([, ms]) => ms);
  const marks = ticks(Math.min(...values), Math.max(...values));
  const y = logarithmic(marks, HEIGHT - BOTTOM, TOP);
  const x = at => LEFT + (at - now + seconds) / seconds * (width - LEFT - RIGHT);
  for (const mark of marks) {
    drawn.append(element('line', {class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark)}));
    drawn.append(element('text', {x: LEFT - 6, y: y(mark) + 4, 'text-anchor': 'end'}, mark));
  }
  for (let ago = 0; ago <= seconds; ago += 15) {
    drawn.append(element('text', {x: x(now - ago), y: HEIGHT - 6, 'text-anchor': ago ? 'middle' : 'end'}, ago ? `−${ago} s` : 'now'));
  }
  for (const [at, ms, source] of shown) {
    const [cx, cy] = [x(at), y(ms)], class_ = `dot ${source}`;
    drawn.append(source === 'exact' ? element('circle', {class: class_, cx, cy, r: 2.6})
      : element('path', {class: class_, d: `M${cx} ${cy - 5}l5 5l-5 5l-5 -5z`}));
  }
  const bySecond = new Map();
  for (const [at, ms] of shown) bySecond.set(Math.floor(at), [...(bySecond.get(Math.floor(at)) || []), ms]);
  const points = [...bySecond].sort(([a], [b]) => a - b)
    .map(([at, ms]) => `${Math.min(x(at + .5), width - RIGHT)},${y(percentile(ms.sort((a, b) => a - b), 99))}`);
  drawn.append(element('polyline', {class: 'line', points: points.join(' ')}));
}

function drawTail(place, recent) {
  const [drawn, width] = sheet(place);
  if (recent.length < 2) return;
  const values = recent.map(([, ms]) => ms);
  const marks = ticks(Math.min(...values), Math.max(...values));
  const shares = [1, .1, .01, .001];
  const x = logarithmic(marks, LEFT, width - RIGHT), y = logarithmic([.0005, 1], HEIGHT - BOTTOM, TOP);
  for (const share of shares) {
    drawn.append(element('line', {class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(share), y2: y(share)}));
    drawn.append(element('text', {x: LEFT - 6, y: y(share) + 4, 'text-anchor': 'end'}, `${share * 100} %`));
  }
  for (const mark of marks) drawn.append(element('text', {x: x(mark), y: HEIGHT - 6, 'text-anchor': 'middle'}, mark));
  for (const source of SOURCES) {
    const sorted = recent.filter(([, , from]) => from === source).map(([, ms]) => ms).sort((a, b) => a - b);
    const points = sorted.map((ms, i) => `${x(ms)},${y((sorted.length - i) / sorted.length)}`);
    if (points.length > 1) drawn.append(element('polyline', {class: `curve ${source}`, points: points.join(' ')}));
  }
}
