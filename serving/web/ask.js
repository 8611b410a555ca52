// The page's engine: questions to its own server, with patience for models that are being loaded or busy.
// A page without a server has the engine of local.js in this place.
"use strict";

const SatEngine = (() => {
  const AGAIN_AFTER = 1000; // ms
  const OF_THE_PHOTOGRAPH = new Set([400, 403, 408, 411, 413]); // statuses that say something of it
  const LARGE = 2 ** 20; // bytes from which a photograph is shrunk before it is sent
  const LONGEST = 1600; // pixels of its longer side then
  let most = 20; // MB

  class Refused extends Error {
    constructor(message, status) {
      super(message);
      this.status = status;
    }
  }

  // Fails as `Refused` if no answer comes.
  async function answering(promise) {
    try {
      return await promise;
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused("The page's own server does not answer.", 503);
    }
  }

  function send(url, fields, signal) {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    return answering(fetch(url, { method: "POST", body: form, signal }));
  }

  async function contentOf(response) {
    let data;
    try {
      data = await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      data = null; // a proxy's page, or half an answer
    }
    if (response.ok && data) return data;
    const { status } = response;
    const what = status === 413 ? "The file is larger than a proxy in between accepts" : "The server's answer cannot be read";
    throw new Refused((data && data.error) || `${what} (status ${status}).`, status);
  }

  // Posts again while a model is away or busy, until the signal aborts; `waiting` is told why.
  async function ask(url, fields, signal, waiting) {
    for (;;) {
      try {
        return await contentOf(await send(url, fields, signal));
      } catch (error) {
        if (error.status !== 503 && error.status !== 429) throw error;
        waiting(error.message);
      }
      await new Promise((go) => setTimeout(go, AGAIN_AFTER));
      signal.throwIfAborted();
    }
  }

  // Posts once, and hands over each line of JSON of the answer when it comes.
  async function lines(url, fields, signal, take) {
    const response = await send(url, fields, signal);
    if (!response.ok) return contentOf(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await answering(reader.read());
      if (done) return;
      const parts = (text + value).split("\n");
      text = parts.pop();
      parts.filter(Boolean).forEach((part) => take(JSON.parse(part)));
    }
  }

  async function json(path) {
    try {
      return await (await fetch(path)).json();
    } catch {
      throw new Error("The page's own server does not answer: is it still running? Then load the page again.");
    }
  }

  async function page() {
    const found = await json("api/page");
    most = found.max_mb;
    return found;
  }

  // A large photograph as a smaller JPEG, upright; any other file as it is.
  async function shrink(image) {
    if (image.size < LARGE) return image;
    let bitmap;
    try {
      bitmap = await createImageBitmap(image);
    } catch {
      return image; // a format that the browser does not read: the server may
    }
    const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
    const canvas = SatViewer.element("canvas", { width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale) });
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
    const smaller = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.95));
    return smaller && smaller.size < image.size ? smaller : image;
  }

  async function prepare(image) {
    const smaller = await shrink(image);
    if (smaller.size > most * 2 ** 20) throw new Error(`This file is larger than ${most} MB: make it smaller.`);
    return smaller;
  }

  function captions(image, { signal }, take) {
    return lines("api/captions", { image }, signal, (line) => {
      if (OF_THE_PHOTOGRAPH.has(line.status)) throw new Refused(line.error, line.status);
      take(line);
    });
  }

  function explain(image, { model, sentence, signal }) {
    return ask("api/explain", { image, model, sentence }, signal, () => {});
  }

  // The models of a further view of the page, and what one of them makes of a drawing on a canvas;
  // `tell` gets sentences on why that takes time.
  const models = (view) => json(`api/${view}`);

  async function read(view, canvas, { model, signal, tell }) {
    const image = await new Promise((done) => canvas.toBlob(done, "image/png"));
    signal.throwIfAborted();
    return ask(`api/${view}`, { model: model.name, image }, signal, (why) => tell(`${why} Trying again …`));
  }

  return { page, begin: () => {}, prepare, captions, explain, models, read };
})();
