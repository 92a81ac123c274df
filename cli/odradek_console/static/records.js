// Searches and live tails: reads lines of JSON from the server and shows their rows. Closing the
// connection ends the search there.
const KEPT = 500; // rows of a live tail
const area = document.getElementById("records");
const rows = document.getElementById("rows");
const progress = document.getElementById("progress");
const meter = document.getElementById("meter");
const cancel = document.getElementById("cancel");
const more = document.getElementById("more");
const start = document.getElementById("start");

function showFields() {
  for (const field of document.querySelectorAll("[data-for]")) field.hidden = field.dataset.for !== start.value;
}
start.addEventListener("change", showFields);
showFields();

const count = new Intl.NumberFormat("en-US");
const words = (found, tail) => {
  const parts = [`${count.format(found.matched)} matched`, `${count.format(found.scanned)} read`];
  if (!tail && found.total) parts[1] += ` of at most ${count.format(found.total)}`;
  parts.push(`${count.format(found.rate)}/s`);
  if (found.failed) parts.push(`${count.format(found.failed)} could not be evaluated (${found.reason})`);
  return parts.join(" · ");
};

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts.filter((part) => part !== "").map((part) => JSON.parse(part));
  }
}

function add(html, tail) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const row = template.content.querySelector("details");
  if (!tail) { rows.append(row); return; }
  rows.prepend(row);
  while (rows.childElementCount > KEPT) rows.lastElementChild.remove();
}

async function run(address, tail) {
  const stop = new AbortController();
  let shown = 0;
  let last = "";
  cancel.hidden = false;
  meter.hidden = tail;
  progress.textContent = tail ? "Waiting for records …" : "Searching …";
  cancel.addEventListener("click", () => stop.abort());
  addEventListener("pagehide", () => stop.abort());
  try {
    const answer = await fetch(address, { signal: stop.signal });
    if (!answer.ok) throw new Error(await answer.text());
    for await (const event of lines(answer.body)) {
      if (event.event === "record") {
        add(event.html, tail);
        shown += 1;
      } else if (event.event === "progress") {
        last = words(event, tail);
        progress.textContent = last;
        if (event.total) meter.value = Math.min(event.scanned / event.total, 1);
      } else if (event.event === "done") {
        if (event.more) { more.href = event.more; more.hidden = false; }
        progress.textContent = `Done: ${last}`;
      } else if (event.event === "error") {
        const problem = document.getElementById("problem");
        problem.textContent = event.message;
        problem.hidden = false;
        progress.textContent = last;
      }
    }
  } catch (error) {
    progress.textContent = error.name === "AbortError" ? `Stopped: ${last}` : `The connection ended: ${last}`;
  }
  cancel.hidden = true;
  meter.hidden = true;
  area.dataset.ended = "yes";
  if (!shown && document.getElementById("problem").hidden) document.getElementById("none").hidden = false;
}

if (area.dataset.stream) run(area.dataset.stream, area.dataset.tail === "yes");
