// Captions away from the page's thread. A classic worker: the runtime is loaded by `importScripts`.
"use strict";

let newest = 0;
let turn = Promise.resolve();

onmessage = ({ data }) => {
  newest = data.id;
  turn = turn.then(() => work(data));
};

async function work({ id, page, cache, module = "./captioner.js", ...job }) {
  const tell = (line) => postMessage({ id, ...line });
  const here = new Map();
  try {
    const [{ begin }, { answers }] = await Promise.all([import("./litert.js"), import(module)]);
    begin(page.files, cache, (done, size, path) => {
      here.set(path, done);
      tell({ loading: [...here.values()].reduce((sum, bytes) => sum + bytes, 0) });
    });
    for await (const line of answers(page, job)) {
      tell(line);
      if (id !== newest) break; // another question waits
    }
    tell({ done: true });
  } catch (error) {
    if (/Content Security Policy|unsafe-eval|Refused to compile/i.test(error.message)) {
      return tell({ failed: "The host's Content-Security-Policy forbids WebAssembly, which the captioners need: its script-src needs 'wasm-unsafe-eval'." });
    }
    const memory = error instanceof RangeError || error instanceof WebAssembly.RuntimeError || /memory|allocat/i.test(error.message);
    tell({ failed: memory ? "This browser has not enough memory for it: close other tabs, or make the photograph smaller." : error.message, broken: memory });
  }
}
