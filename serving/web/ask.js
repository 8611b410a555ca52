// The page's engine on this machine: questions to its own server. A static page has that of local.js.
"use strict";

const SatEngine = (() => {
  let most = 20; // MB

  async function json(path, options) {
    const response = await fetch(path, options).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Error("The page's own server does not answer: is it still running? Then load the page again.");
    });
    const data = await response.json();
    if (!response.ok) throw Object.assign(new Error(data.error), { status: response.status });
    return data;
  }

  function post(path, fields, signal) {
    const body = new FormData();
    Object.entries(fields).forEach(([name, value]) => body.append(name, value));
    return json(path, { method: "POST", body, signal });
  }

  async function page() {
    const found = await json("api/page");
    most = found.max_mb;
    return found;
  }

  async function prepare(image) {
    if (image.size > most * 2 ** 20) throw new Error(`This file is larger than ${most} MB: make it smaller.`);
    return image;
  }

  // Asks every captioner about a photograph, and hands over each answer when it comes.
  function captions(image, { models, signal }, take) {
    return Promise.all(models.map(async (model) => {
      try {
        take({ model, ...(await post("api/caption", { image, model }, signal)) });
      } catch (error) {
        if (error.status !== 500) throw error; // of the photograph
        take({ model, error: error.message });
      }
    }));
  }

  const explain = (image, { model, sentence, signal }) => post("api/caption", { image, model, sentence }, signal);

  // The models of a further view of the page, and the answer of one of them to a drawing on a canvas.
  const models = (view) => json(`api/${view}`);

  async function read(view, canvas, { model, signal }) {
    const image = await new Promise((done) => canvas.toBlob(done, "image/png"));
    signal.throwIfAborted();
    return post(`api/${view}`, { model: model.name, image }, signal);
  }

  return { page, begin: () => {}, prepare, captions, explain, models, read };
})();
