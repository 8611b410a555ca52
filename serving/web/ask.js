// Questions to the page's own server, with patience for models that are being loaded or busy.
"use strict";

const SatAsk = (() => {
  const AGAIN_AFTER = 1000; // ms

  class Refused extends Error {
    constructor(message, status) {
      super(message);
      this.status = status;
    }
  }

  async function post(url, fields, signal) {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    let response;
    try {
      response = await fetch(url, { method: "POST", body: form, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused("The page's own server does not answer.", 503);
    }
    const data = await response.json();
    if (!response.ok) throw new Refused(data.error, response.status);
    return data;
  }

  // Posts again while a model is away or busy, until the signal aborts; `waiting` is told why.
  async function ask(url, fields, signal, waiting) {
    for (;;) {
      try {
        return await post(url, fields, signal);
      } catch (error) {
        if (error.status !== 503 && error.status !== 429) throw error;
        waiting(error.message);
      }
      await new Promise((go) => setTimeout(go, AGAIN_AFTER));
      signal.throwIfAborted();
    }
  }

  return { ask };
})();
