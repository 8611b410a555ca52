// Captions away from the page's thread. A classic worker: the runtime is loaded by `importScripts`.
"use strict";

let newest = 0;
let turn = Promise.resolve();

onmessage = ({ data }) => {
  newest = data.id;
  turn = turn.then(() => work(data));
};

async function work({ id, page, cache, file }) {
  const tell = (line) => postMessage({ id, ...line });
  const here = new Map();
  try {
    const [{ begin }, { load, caption }] = await Promise.all([import("./litert.js"), import("./captioner.js")]);
    begin(page.files, cache, (done, size, path) => {
      here.set(path, done);
      tell({ loading: [...here.values()].reduce((sum, bytes) => sum + bytes, 0) });
    });
    await load(page.captioners);
    tell({ ready: true });
    const captioners = page.captioners[Symbol.iterator]();
    for await (const answer of file ? caption(page.captioners, file, page.most_pixels) : []) {
      const { name } = captioners.next().value;
      if (id !== newest) break; // another photograph waits
      tell({ model: name, ...answer });
    }
    tell({ done: true });
  } catch (error) {
    const memory = error instanceof RangeError || error instanceof WebAssembly.RuntimeError || /memory|allocat/i.test(error.message);
    tell({ failed: memory ? "This browser has not enough memory for it: close other tabs, or make the photograph smaller." : error.message, broken: memory });
  }
}
