// The page works without this. With it, parts that changed are exchanged as soon as something happens.
"use strict";

const watched = document.body.dataset.watch;
const link = document.getElementById("link");
let due = false, busy = false;

function tails() {
  for (const log of document.querySelectorAll("[data-tail]")) log.scrollTop = log.scrollHeight;
}

function ages() {
  const now = Date.now();
  for (const time of document.querySelectorAll("[data-ago]")) {
    const passed = Math.round((now - Date.parse(time.dateTime)) / 1000), whole = Math.abs(passed);
    const [unit, length] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]].find(([, length]) => whole >= length) || ["s", 1];
    const text = Math.floor(whole / length) + " " + unit;
    time.textContent = passed >= 0 ? text + " ago" : "in " + text;
  }
}

function exchange(fresh) {
  const names = (page) => [...page.querySelectorAll("main [data-live]")].map((each) => each.id).join();
  if (names(document) !== names(fresh) && !document.querySelector("main form, details[open]")) {
    document.getElementById("main").replaceWith(document.importNode(fresh.getElementById("main"), true));
    tails();
    return;
  }
  for (const old of document.querySelectorAll("[data-live]")) {
    const source = fresh.getElementById(old.id);
    if (!source || old.outerHTML === source.outerHTML || (old.matches("pre") && old.contains(document.activeElement))) continue;
    const next = document.importNode(source, true);
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const atEnd = old.scrollHeight - old.scrollTop - old.clientHeight < 40, place = old.scrollTop;
    old.replaceWith(next);
    if ("tail" in next.dataset) next.scrollTop = atEnd ? next.scrollHeight : place;
    if (focused) [...next.querySelectorAll("a")].find((each) => each.getAttribute("href") === focused)?.focus();
  }
}

// Buckets that were not read yet when the page was made: the end of the first look is no event.
function unread() { return document.querySelector("[data-unread]"); }

async function refresh() {
  if (busy) { due = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") location.reload();
    else if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* the next event tries again */ }
  setTimeout(() => { busy = false; if (due || unread()) { due = false; refresh(); } }, watched === "*" ? 2000 : 700);
}

function listen() {
  const events = new EventSource("/api/events");
  const changed = (event) => { const facts = JSON.parse(event.data); if (watched === "*" || facts.pipeline === watched) refresh(); };
  for (const kind of ["run_started", "run_ended", "committed", "progress"]) events.addEventListener(kind, changed);
  events.onopen = () => { if (!link.hidden) { link.hidden = true; refresh(); } };
  events.onerror = () => { link.textContent = "The service does not answer; trying again"; link.hidden = false; };
}

document.addEventListener("keydown", (event) => {
  const field = document.querySelector("[data-key='/']");
  if (event.key === "/" && field && !event.target.matches("input, textarea")) { event.preventDefault(); field.focus(); }
});

tails();
setInterval(ages, 5000);
if (unread()) refresh();
if (watched) listen();
