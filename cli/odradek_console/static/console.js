// What pages have in common: live updates, search as you type, keys, the theme. All pages work
// without it: lists are links and forms.
const LIVE_MS = 5000;
const TYPING_MS = 180;
document.documentElement.classList.add("scripted");

let paused = false;
let request = null;

// Replaces the parts marked data-live by those of the same address, as the server renders them now.
async function refresh(address, search) {
  request?.abort();
  request = new AbortController();
  try {
    const answer = await fetch(address, { signal: request.signal, headers: { "X-Live": "1" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return; }
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      if (!search && (part.hasAttribute("data-still") || busy(part))) continue;
      const fresh = page.getElementById(part.id);
      if (fresh && fresh.innerHTML !== part.innerHTML) part.innerHTML = fresh.innerHTML;
    }
  } catch (error) {
    if (error.name !== "AbortError") console.warn(error);
  }
}

// A person who selects text, has opened something, or stands on a link is not interrupted.
function busy(part) {
  const selected = getSelection();
  return part.contains(document.activeElement) || part.querySelector("details[open]") !== null ||
    (selected && !selected.isCollapsed && part.contains(selected.anchorNode));
}

if (document.querySelector("[data-live]")) {
  setInterval(() => { if (!paused && !document.hidden) refresh(location.href, false); }, LIVE_MS);
}

function addressOf(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  const text = query.toString();
  return text ? `${location.pathname}?${text}` : location.pathname;
}

let typing = 0;
for (const field of document.querySelectorAll("[data-search]")) {
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      const address = addressOf(field.form);
      history.replaceState(null, "", address);
      refresh(address, true);
    }, TYPING_MS);
  });
}
for (const field of document.querySelectorAll("[data-submit]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}
// On a phone the navigation is wider than the screen.
document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
document.querySelector("[data-focus]:not([type=search])")?.focus();

const help = document.getElementById("help");
document.getElementById("keys")?.addEventListener("click", () => help.showModal());
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
});

function move(step) {
  const rows = [...document.querySelectorAll(".list tbody tr a, .record > summary")];
  if (!rows.length) return;
  const now = rows.indexOf(document.activeElement);
  rows[Math.min(Math.max(now + step, 0), rows.length - 1)].focus();
}

let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = event.key;
  if (before === "g") {
    document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`)?.click();
  } else if (key === "/") {
    event.preventDefault();
    document.querySelector("input[type=search]")?.focus();
  } else if (key === "?" && help) {
    help.showModal();
  } else if (key === "j" || key === "k") {
    move(key === "j" ? 1 : -1);
  } else if (key === "p") {
    paused = !paused;
  }
  before = before === "g" ? "" : key;
});
