// The page's engine without a server: the captioners run in a worker of this browser.
"use strict";

const SatEngine = (() => {
  // A module with one operation on vectors: the runtime needs them.
  const SIMD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];
  const able = () => typeof WebAssembly === "object" && WebAssembly.validate(new Uint8Array(SIMD));
  const UNABLE = "This browser has no WebAssembly SIMD, which the captioners need: the samples work, other photographs take a newer browser.";
  const OTHER_TAB = "This page is open in another tab, too: each takes its own memory.";

  let site = null;
  let worker = null;
  let next = 0;
  let whole = 0; // bytes of all that is downloaded
  const waiting = new Map(); // what hears of a job, by its number

  async function json(path) {
    const response = await fetch(path);
    if (!response.ok) throw new Error(`${path} is missing (status ${response.status})`);
    return response.json();
  }

  async function page() {
    if (location.protocol === "file:") throw new Error("A page that is opened as a file cannot load its parts: run `python -m http.server` in its folder, and open what it says.");
    site = await json("page.json").catch((error) => { throw new Error(`The page's own files cannot be loaded: ${error.message}.`); });
    whole = site.download;
    if (!able()) site.notes.push(UNABLE);
    // Browsers have it on https and localhost alone.
    navigator.serviceWorker?.register(`offline.js?v=${site.version}`).catch(() => {});
    return site;
  }

  // Gives the worker a job for one of its modules, by default the captioners'; `hear` is told what comes of it.
  function post(job, hear) {
    if (!worker) {
      worker = new Worker("assets/worker.js");
      const end = (failed) => {
        worker?.terminate();
        worker = null; // the next photograph begins with a new one
        [...waiting.values()].forEach((tell) => tell({ failed }));
        waiting.clear();
      };
      worker.onerror = () => end("The captioners stopped: try again, or load the page again.");
      worker.onmessage = ({ data }) => {
        waiting.get(data.id)?.(data);
        if (data.broken) end(data.failed);
        else if (data.done || data.failed) waiting.delete(data.id);
      };
    }
    waiting.set(++next, hear);
    worker.postMessage({ id: next, page: site, cache: `sat_tf ${new URL("./", location)} ${site.version}`, ...job });
  }

  // Loads the captioners before there is a photograph; `note` is told what is worth knowing.
  let begun = false;
  function begin(note, take) {
    if (begun || !able()) return;
    begun = true;
    navigator.locks?.request("sat_tf", { ifAvailable: true }, (lock) => (lock ? new Promise(() => {}) : note(OTHER_TAB)));
    post({}, (line) => {
      if (line.loading) take(progress(line));
      if (line.ready && navigator.serviceWorker?.controller) site.shell.forEach((path) => fetch(path)); // it keeps them
    });
  }

  const progress = ({ loading }) => ({ loading: [loading, whole] });

  // Hands over what comes of a job, until it is done.
  function work(job, signal, take) {
    return new Promise((done, fail) => {
      signal.addEventListener("abort", () => fail(signal.reason));
      post(job, (line) => {
        if (line.failed) fail(new Error(line.failed));
        else if (line.done) done();
        else if (!signal.aborted) take(line);
      });
    });
  }

  // Hands over the answer of each captioner; of a sample it came with the page.
  async function captions(image, { sample, signal }, take) {
    if (sample) return (await json(`samples/${sample.file}.json`)).forEach(take);
    if (!able()) throw new Error(UNABLE);
    await work({ file: image }, signal, (line) => {
      if (line.loading) take(progress(line));
      else if (line.model) take({ model: line.model, ...answer(line) });
    });
  }

  // What a captioner makes of a sentence about an image.
  async function explain(image, { model, sentence, signal }) {
    if (!able()) throw new Error(UNABLE);
    let found;
    const reader = document.createElement("textarea");
    reader.innerHTML = sentence.replaceAll("<", "&lt;"); // entities, as &amp;, which a worker cannot read
    await work({ file: image, model, sentence: reader.value }, signal, (line) => {
      if (line.captions) found = answer({ ...line, model });
    });
    return found;
  }

  // The models of a further view of the page, and what one of them, which names the worker's module for
  // it, makes of a drawing on a canvas; `tell` gets sentences on why that takes time.
  async function models(view) {
    if (!able()) throw new Error("This browser has no WebAssembly SIMD, which the models need: it takes a newer one.");
    return json(`${view}.json`);
  }

  async function read(view, canvas, { model, signal, tell }) {
    const { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    const drawing = { width, ink: Uint8Array.from({ length: width * height }, (_, i) => data[4 * i]) };
    let found;
    await work({ module: model.module, model, drawing }, signal, ({ loading, reading }) => {
      if (reading) found = reading;
      else if (loading) tell(`Loading the model: ${SatViewer.megabytes(loading)} of ${SatViewer.megabytes(model.download)} MB`);
    });
    return found;
  }

  // As `viewer_data` of the server's page.
  function answer({ model, captions: found, level, remarks, unknown, width, height }) {
    const { kind, lang, grid, resize } = site.captioners.find(({ name }) => name === model);
    const side = Math.min(width, height);
    const [left, top] = [(width - side) >> 1, (height - side) >> 1];
    const crop = resize === "crop" ? [left / width, top / height, (left + side) / width, (top + side) / height] : [0, 0, 1, 1];
    return { hypotheses: found.map(hypothesis), kind, lang, grid, crop, level, remarks, unknown };
  }

  function hypothesis({ text, score, words }) {
    const peak = words.reduce((most, { alpha = [] }) => alpha.reduce((a, b) => Math.max(a, b), most), 0);
    const map = (alpha) => alpha && btoa(String.fromCharCode(...alpha.map((weight) => Math.round((255 * weight) / peak))));
    return { text, score, peak, words: words.map(({ alpha, beta = null, ...word }) => ({ ...word, beta, map: map(alpha) ?? null })) };
  }

  return { page, begin, captions, explain, prepare: async (image) => image, models, read };
})();
