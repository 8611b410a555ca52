// The page's engine: questions to its own server, with patience for models that are being loaded or busy.
// A page without a server has the engine of local.js in this place.
"use strict";

const SatEngine = (() => {
  const AGAIN_AFTER = 1000; // ms
  const LATE = 1500; // ms after which an answer is late
  const OF_THE_PHOTOGRAPH = new Set([400, 403, 411, 413]); // statuses that say something of it
  const LATER = new Set([429, 503]); // of a model that is away or busy
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
    if (data && data.error) throw new Refused(data.error, status);
    if (LATER.has(status)) throw new Refused("The page's own server is busy.", status);
    const what = status === 413 ? "The file is larger than a proxy in between accepts" : "The server's answer cannot be read";
    throw new Error(`${what} (status ${status}).`);
  }

  // Posts again while a model is away or busy, until the signal aborts; `waiting` is told why.
  async function ask(url, fields, signal, waiting) {
    for (;;) {
      try {
        return await contentOf(await send(url, fields, signal));
      } catch (error) {
        if (!LATER.has(error.status)) throw error;
        waiting(error.message);
      }
      await new Promise((go) => setTimeout(go, AGAIN_AFTER));
      signal.throwIfAborted();
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

  // Asks every captioner about a photograph, and hands over each answer when it comes.
  function captions(image, { models, signal }, take) {
    const each = async (model) => {
      const waiting = (why) => take({ model, waiting: why });
      const late = setTimeout(waiting, LATE, "Looking … A captioner that is being loaded takes some seconds.");
      try {
        take({ model, ...(await ask("api/caption", { image, model }, signal, waiting)) });
      } catch (error) {
        if (error.name === "AbortError" || OF_THE_PHOTOGRAPH.has(error.status) || !(error instanceof Refused)) throw error;
        take({ model, error: error.message });
      } finally {
        clearTimeout(late);
      }
    };
    return Promise.all(models.map(each));
  }

  function explain(image, { model, sentence, signal }) {
    return ask("api/caption", { image, model, sentence }, signal, () => {});
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
