// The page without a network, once it was loaded: its own files are asked for anew each time, and
// taken from the cache if nobody answers; weights, whose names change with them, come from there at once.
"use strict";

const CACHE = `sat_tf ${registration.scope} ${new URL(location).searchParams.get("v")}`;

addEventListener("install", (event) => event.waitUntil((async () => {
  const { shell } = await (await fetch("page.json")).json();
  await (await caches.open(CACHE)).addAll(["./", ...shell]);
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
  const kept = await (await caches.open(CACHE)).match(request, { ignoreSearch: true });
  if (kept && /\/models\//.test(request.url)) return kept;
  return fetch(request).catch(() => kept ?? Response.error());
}
