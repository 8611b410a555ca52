// The models of a page without a server: they run in a worker of this browser.
"use strict";

const SatDigits = {
  async models() {
    const site = await SatEngine.page();
    document.querySelector("#views").hidden = !site.models.length;
    if (!SatEngine.able()) throw new Error("This browser has no WebAssembly SIMD, which the models need: it takes a newer one.");
    return SatEngine.json("digits.json");
  },

  // What a model makes of the drawing on a canvas; `tell` gets sentences on why that takes time.
  read(model, canvas, signal, tell) {
    const { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    const drawing = { width, ink: Uint8Array.from({ length: width * height }, (_, i) => data[4 * i]) };
    const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
    return new Promise((done, fail) => {
      signal.addEventListener("abort", () => fail(signal.reason));
      SatEngine.post({ module: "./reading.js", model, drawing }, ({ failed, loading, reading }) => {
        if (failed) fail(new Error(failed));
        else if (reading) done(reading);
        else if (loading) tell(`Loading the model: ${megabytes(loading)} of ${megabytes(model.download)} MB`);
      });
    });
  },
};
