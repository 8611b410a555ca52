// The live page: takes a photograph, asks each captioner about it, shows the answers in viewers.
"use strict";

(() => {
  const { element } = SatViewer;
  const find = (query) => document.querySelector(query);
  const ALL_COLUMNS = new Set([400, 403, 411, 413]); // statuses that say something of the photograph
  let page = { models: [], samples: [], notes: [], max_mb: 20 };
  let shown = { stop: new AbortController(), url: "", viewers: [] };

  const say = (text) => (find("#message").textContent = text);

  async function start() {
    listen();
    try {
      page = await (await fetch("api/page")).json();
    } catch {
      return say("The page's own server does not answer: is it still running? Then load the page again.");
    }
    find("#views").hidden = !page.digits.length;
    find("#notes").replaceChildren(...page.notes.map((note) => element("p", {}, note)));
    find(".samples").replaceChildren(...page.samples.map((sample) => element("li", {}, sampleButton(sample))));
    find("#sources").replaceChildren(...page.samples.map((sample) => element("li", {}, `${sample.title}: ${sample.source}`)));
    document.body.classList.toggle("several", page.models.length > 1);
    const switches = page.models.map((name, i) => element("button", { type: "button", class: "plain", onclick: () => choose(i) }, name));
    find("#switch").replaceChildren(...switches);
  }

  function sampleButton(sample) {
    const button = element("button", { type: "button", "aria-label": sample.title, "aria-pressed": "false", title: sample.title },
      element("img", { src: `samples/${sample.file}`, alt: "" }));
    button.addEventListener("click", async () => {
      try {
        show(await (await fetch(`samples/${sample.file}`)).blob(), button);
      } catch {
        say("The sample cannot be loaded: is the page's own server still running?");
      }
    });
    return button;
  }

  function listen() {
    find("#choose").addEventListener("click", () => find("#file").click());
    find("#file").addEventListener("change", (event) => {
      take(event.target.files);
      event.target.value = ""; // so that the same file can be chosen again
    });
    let inside = 0; // elements entered and not left
    const mark = (by) => document.body.classList.toggle("dragging", (inside = Math.max(0, inside + by)) > 0);
    document.addEventListener("dragenter", () => mark(1));
    document.addEventListener("dragleave", () => mark(-1));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      mark(-inside);
      take(event.dataTransfer.files);
    });
    document.addEventListener("paste", (event) => take(event.clipboardData.files));
    find("#camera").addEventListener("click", openCamera);
    find("#shoot").addEventListener("click", shoot);
    find("#leave").addEventListener("click", () => find("#booth").close());
    find("#booth").addEventListener("close", () => find("video").srcObject?.getTracks().forEach((track) => track.stop()));
  }

  function take(files) {
    if (files.length) show(files[0]);
    else say("That was no file. Drop or paste a photograph itself, not a link to one.");
  }

  // Asks every captioner about an image; `button` is the sample that it came from.
  function show(image, button = null) {
    if (image.size > page.max_mb * 2 ** 20) return say(`This file is larger than ${page.max_mb} MB: make it smaller.`);
    shown.stop.abort();
    shown.viewers.forEach((viewer) => viewer.stop());
    URL.revokeObjectURL(shown.url);
    shown = { stop: new AbortController(), url: URL.createObjectURL(image), viewers: [] };
    say("");
    document.querySelectorAll(".samples button").forEach((other) => other.setAttribute("aria-pressed", other === button));
    const columns = page.models.map((name) => element("div", { class: "column" }, waiting(name, "Looking …")));
    find("#results").replaceChildren(...columns);
    choose(0);
    columns.forEach((column, i) => fill(column, page.models[i], image, shown));
    find("#results").scrollIntoView({ block: "nearest" });
  }

  function choose(index) {
    [...find("#results").children].forEach((column, i) => column.classList.toggle("chosen", i === index));
    [...find("#switch").children].forEach((button, i) => button.setAttribute("aria-pressed", i === index));
    find("#switch").hidden = !find("#results").children.length;
  }

  function waiting(name, text, url = shown.url) {
    const image = element("img", { src: url, alt: "" });
    image.addEventListener("error", () => image.remove());
    return element("div", { class: "waiting" }, element("p", {}, element("strong", {}, name), ` ${text}`), image);
  }

  async function fill(column, name, image, mine) {
    try {
      const data = await SatAsk.ask("api/caption", { model: name, image }, mine.stop.signal, (why) => {
        column.replaceChildren(waiting(name, `${why} Trying again …`, mine.url));
        find("#status").textContent = `${name}: ${why}`;
      });
      mine.viewers.push(new SatViewer.Viewer(column, { image: mine.url, lang: page.lang, ...data, model: name }));
      find("#status").textContent = `${name}: ${data.hypotheses[0].text}`;
    } catch (error) {
      if (error.name === "AbortError" || mine !== shown) return;
      if (ALL_COLUMNS.has(error.status)) {
        mine.stop.abort();
        find("#results").replaceChildren();
        find("#switch").hidden = true;
        return say(error.message);
      }
      column.replaceChildren(waiting(name, error.message));
    }
  }

  const CAMERA_ERRORS = {
    NotFoundError: "No camera was found. Choose a file instead.",
    NotAllowedError: "The browser does not let this page use the camera. Allow it in the address bar, or choose a file.",
    NotReadableError: "Another program is using the camera.",
  };

  async function openCamera() {
    if (!navigator.mediaDevices) return say("Browsers lend the camera to pages on this computer (localhost) or over HTTPS alone. Choose a file instead.");
    try {
      find("video").srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      return say(CAMERA_ERRORS[error.name] || `The camera cannot be used: ${error.message}.`);
    }
    say("");
    find("#booth").showModal();
  }

  function shoot() {
    const video = find("video");
    if (!video.videoWidth) return; // the camera has no image yet
    const canvas = element("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((image) => show(image), "image/jpeg", 0.92);
    find("#booth").close();
  }

  start();
})();
