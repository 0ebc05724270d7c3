// Asks the service how it does, sends it test images, and presses its buttons.
const token = document.querySelector('meta[name=token]')?.content;
const SLOW = 400; // milliseconds that the button adds
const at = id => document.getElementById(id);
let recent = [], since = 0, failures = 0, slowed = {}, images = null, clock = 0;

async function post(path, body, headers = {}) {
  return fetch(path, {method: 'POST', headers: {'Content-Type': 'application/json', ...headers}, body: JSON.stringify(body)});
}

function say(text) { at('news').textContent = text; }

async function press(path, body) {
  const answer = await post(path, body, {'X-Token': token});
  if (!answer.ok) say((await answer.json()).error);
  return answer.ok;
}

function box(name) {
  const made = document.createElement('article');
  made.className = 'server';
  made.dataset.server = name;
  const title = document.createElement('h2'), label = document.createElement('span'), state = document.createElement('span');
  label.textContent = name;
  state.className = 'state';
  title.append(label, state);
  const note = document.createElement('p');
  made.append(title, note);
  if (token) {
    const slow = document.createElement('button'), kill = document.createElement('button');
    slow.className = 'slow-down';
    slow.addEventListener('click', () => press('/admin/slow', {server: name, milliseconds: slowed[name] ? 0 : SLOW}));
    kill.className = 'kill';
    kill.textContent = 'Kill';
    kill.addEventListener('click', () => press('/admin/kill', {server: name}));
    made.append(slow, ' ', kill);
  }
  at('servers').append(made);
  return made;
}

function showServers(servers, deadlines) {
  for (const [name, state] of Object.entries(servers)) {
    const place = document.querySelector(`[data-server="${CSS.escape(name)}"]`) || box(name);
    const slow = slowed[name] > 0, down = state === 'down';
    place.className = `server ${down ? 'down' : slow ? 'slow' : ''}`;
    place.querySelector('.state').textContent = down ? 'dead, being restarted' : slow ? `slow by ${slowed[name]} ms` : 'up';
    place.querySelector('p').textContent = name in deadlines
      ? `expert; waited for ${deadlines[name]} ms, then decoded` : 'the coded network: stands in for any expert';
    const button = place.querySelector('.slow-down');
    if (button) button.textContent = slow ? 'Normal speed' : 'Make slow';
  }
}

function showNumbers(told) {
  at('exact').textContent = told.answers.exact || 0;
  at('decoded').textContent = told.answers.decoded || 0;
  const errors = Math.max(told.errors, failures);
  at('errors').textContent = errors;
  at('errors').parentElement.classList.toggle('some', errors > 0);
  const late = recent.filter(([when]) => when > told.now - 30).map(([, ms]) => ms).sort((a, b) => a - b);
  for (const q of [50, 99]) at(`p${q}`).textContent = late.length ? `${percentile(late, q).toFixed(0)} ms` : '–';
  for (const source of SOURCES) {
    const seen = told.labelled[source];
    at(`right-${source}`).textContent = seen ? `${(100 * seen.right / seen.seen).toFixed(1)} %` : '–';
  }
  const learnt = Object.entries(told.learning).map(([name, sums]) => `${name}: ${sums.pairs} pairs seen, ${sums.swaps} better maps`);
  at('learning').textContent = learnt.length ? `The decoder learns from traffic, without labels. ${learnt.join('; ')}.` : '';
}

async function look() {
  try {
    const told = await (await fetch(`/stats?since=${since}`)).json();
    recent = [...recent, ...told.recent].slice(-1500);
    if (told.recent.length) since = told.recent[told.recent.length - 1][0];
    slowed = told.slowed;
    showServers(told.servers, told.deadlines);
    showNumbers(told);
    drawLatencies(at('latencies'), recent, told.now);
    drawTail(at('tail'), recent);
    say('');
  } catch (error) {
    say('the service does not answer; it has ended, or its router is being restarted');
    since = 0;
    recent = [];
  }
  setTimeout(look, 500);
}

async function send() {
  if (at('sending').checked && images) {
    const names = Object.keys(images), name = names[clock % names.length], of = images[name];
    const i = Math.floor(clock / names.length) % of.inputs.length;
    clock += 1;
    const ensemble = at('kind').value === 'all';
    post('/predict', {inputs: [of.inputs[i]], labels: [of.labels[i]], expert: ensemble ? 'all' : name})
      .then(answer => { if (!answer.ok) failures += 1; }, () => { failures += 1; });
  }
  setTimeout(send, 1000 / at('rate').value);
}

async function begin() {
  at('rate').addEventListener('input', () => { at('rate-shown').textContent = at('rate').value; });
  look();
  const found = await (await fetch('/samples')).json();
  if (!Object.keys(found).length) return;
  images = found;
  at('traffic').hidden = false;
  send();
}
begin();
