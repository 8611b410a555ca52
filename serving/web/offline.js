// The page without a network, once it was loaded: its own files are asked for anew each time, and
// taken from the cache if nobody answers; weights, whose names change with them, come from there at once.
"use strict";

const CACHE = `sat_tf ${registration.scope} ${new URL(location).searchParams.get("v")}`;

addEventListener("install", (event) => event.waitUntil((async () => {
  const { shell, samples } = await (await fetch("page.json")).json();
  const first = shell.filter((path) => path.startsWith("assets/") || path.includes(samples[0]?.file));
  await (await caches.open(CACHE)).addAll(["./", "page.json", ...first]); // the rest as it is asked for
  await skipWaiting();
})()));

addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith(`sat_tf ${registration.scope} `) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
})()));

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method === "GET" && request.url.startsWith(registration.scope)) event.respondWith(answer(request));
});

async function answer(request) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request, { ignoreSearch: true });
  const place = request.url.slice(registration.scope.length);
  const weights = /^models\/|\.packed$/.test(place); // the worker keeps them, once they are checked
  if (kept && weights && request.cache !== "reload") return kept;
  try {
    const fresh = await fetch(request);
    if (fresh.ok && !weights) await cache.put(request, fresh.clone()).catch(() => {}); // no room
    return fresh;
  } catch {
    return kept ?? Response.error();
  }
}
