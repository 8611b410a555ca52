// The models of the page's own server; a page without one has those of digits_local.js in this place.
"use strict";

const SatDigits = {
  async models() {
    try {
      return await (await fetch("api/digits")).json();
    } catch {
      throw new Error("The page's own server does not answer: is it still running? Then load the page again.");
    }
  },

  // What a model makes of the drawing on a canvas; `tell` gets sentences on why that takes time.
  async read(model, canvas, signal, tell) {
    const image = await new Promise((done) => canvas.toBlob(done, "image/png"));
    signal.throwIfAborted();
    return SatAsk.ask("api/digits", { model: model.name, image }, signal, (why) => tell(`${why} Trying again …`));
  },
};
