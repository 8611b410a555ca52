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
    let data;
    try {
      data = await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      data = null; // a proxy's page, or half an answer
    }
    if (response.ok && data) return data;
    throw new Refused((data && data.error) || inWords(response.status), response.status);
  }

  // Of an answer that is not from the page's own server.
  function inWords(status) {
    const what = status === 413 ? "The file is larger than a proxy in between accepts" : "The server's answer cannot be read";
    return `${what} (status ${status}).`;
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
