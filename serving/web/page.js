// The live page: takes a photograph, asks the captioners about it, shows the answers side by side.
"use strict";

(() => {
  const { element, megabytes } = SatViewer;
  const find = (query) => document.querySelector(query);
  let page = { models: [], samples: [], notes: [], about: [], views: [] };
  let comparison;
  const own = find("#own"); // the form of a sentence, which moves to the captioner shown
  const nothing = { stop: new AbortController(), url: "", answers: [] };
  let asked = nothing;
  let shown = nothing; // the one that is on the page
  let open;
  const opened = new Promise((done) => (open = done)); // from then on there are captioners to ask

  const say = (text) => (find("#message").textContent = text);

  async function start() {
    listen();
    try {
      page = await SatEngine.page();
    } catch (error) {
      return say(error.message);
    }
    find("#views").hidden = !page.views.length;
    find("#views").append(...page.views.map(({ path, title }) => element("a", { href: path }, title)));
    find("#about").textContent = page.about.join(" ");
    page.notes.forEach(note);
    const groups = new Map(page.samples.map((sample) => [sample.group, []]));
    page.samples.forEach((sample) => groups.get(sample.group).push(element("li", {}, sampleButton(sample))));
    find("#samples").replaceChildren(...[...groups].map(([name, items], i) =>
      element("div", {}, element("h3", { id: `group${i}` }, name), element("ul", { class: "samples", "aria-labelledby": `group${i}` }, ...items))));
    find("#sources").replaceChildren(...page.samples.map((sample) => element("li", {}, `${sample.title}: ${sample.source}`)));
    comparison = new SatViewer.Comparison(find("#results"), page.models, page.kinds, page.own);
    comparison.extra = own;
    open();
    if (page.models.length && page.samples.length) await take(page.samples[0], find(".samples button"), false);
  }

  function note(text) {
    find("#notes").append(element("p", {}, text));
  }

  function sampleButton(sample) {
    const button = pressable(sample.title, `samples/${sample.file}`);
    button.addEventListener("click", () => take(sample, button));
    return button;
  }

  async function take(sample, button, arrive = true) {
    try {
      const image = await (await fetch(`samples/${sample.file}`)).blob();
      if (arrive || asked === nothing) await show(image, { sample, button, arrive }); // the first gives way to a photograph
    } catch {
      say("The sample cannot be loaded: is there a network, and the page's own server still running?");
    }
  }

  // Lets the engine get ready for a photograph, and shows how far it is.
  const prepare = () => SatEngine.begin(note, loading);

  function loading({ loading: [done, whole] }) {
    find("#loading").hidden = done >= whole;
    Object.assign(find("#loading progress"), { value: done, max: whole });
    find("#loading span").textContent = `Loading the captioners: ${megabytes(done)} of ${megabytes(whole)} MB`;
  }

  function listen() {
    find("#choose").addEventListener("click", () => { find("#file").click(); prepare(); });
    find("#file").addEventListener("change", (event) => {
      receive(event.target.files);
      event.target.value = ""; // so that the same file can be chosen again
    });
    let inside = 0; // elements entered and not left
    const mark = (by) => document.body.classList.toggle("dragging", (inside = Math.max(0, inside + by)) > 0);
    document.addEventListener("dragenter", () => { mark(1); prepare(); });
    document.addEventListener("dragleave", () => mark(-1));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      mark(-inside);
      receive(event.dataTransfer.files);
    });
    document.addEventListener("paste", (event) => receive(event.clipboardData.files));
    find("#png").addEventListener("click", async () => save(await comparison.viewer().picture(), "png"));
    find("#html").addEventListener("click", async () => save(await asPage(), "html"));
    own.addEventListener("submit", (event) => {
      event.preventDefault();
      explain(own.elements.sentence.value);
    });
    own.elements.back.addEventListener("click", () => {
      shown.answers = shown.captions;
      shown.captions = null;
      present(shown);
    });
  }

  function receive(files) {
    if (!files.length) return say("That was not a file. Drop or paste a photograph itself, not a link to one.");
    const photographs = [...files];
    const strip = find("#strip ul");
    strip.querySelectorAll("img").forEach(({ src }) => URL.revokeObjectURL(src));
    const buttons = photographs.map((file) => {
      const button = pressable(file.name, URL.createObjectURL(file));
      button.addEventListener("click", () => show(file, { button }));
      return button;
    });
    strip.replaceChildren(...(buttons.length > 1 ? buttons.map((button) => element("li", {}, button)) : []));
    find("#strip").hidden = buttons.length < 2;
    show(photographs[0], { button: buttons.length > 1 ? buttons[0] : null });
  }

  const pressable = (name, src) => element("button", { type: "button", "aria-label": name, "aria-pressed": "false", title: name },
    element("img", { src, alt: "" }));

  // Shows an image, and asks all captioners about it; one that is refused gives way to the last.
  // `sample` and `button` are those it came from; with `arrive`, the captions are brought into view.
  async function show(image, { sample = null, button = null, arrive = true } = {}) {
    asked.stop.abort();
    const mine = (asked = { stop: new AbortController(), url: "", answers: [], button, arrive });
    await opened;
    if (mine !== asked) return;
    say("");
    find("#results").setAttribute("aria-busy", true);
    if (!sample) prepare();
    try {
      image = await SatEngine.prepare(image);
    } catch (error) {
      return end(mine, error.message);
    }
    if (mine !== asked) return;
    const url = URL.createObjectURL(image);
    const probe = element("img", { src: url });
    const preview = await probe.decode().then(() => url, () => ""); // a format that the browser does not show
    if (mine !== asked) return URL.revokeObjectURL(url);
    Object.assign(mine, { image, url, preview, before: shown.before || shown });
    if (mine.before !== shown) URL.revokeObjectURL(shown.url);
    present(mine);
    if (arrive) find("#results").focus({ preventScroll: true });
    bring(arrive);
    page.models.forEach((_, i) => comparison.wait(i, "Looking …"));
    try {
      await SatEngine.captions(image, { sample, models: page.models, signal: mine.stop.signal }, ({ model, ...line }) => {
        if (line.loading) return loading(line);
        if (mine !== asked) return; // it was on its way when another photograph came
        put(mine, page.models.indexOf(model), line);
      });
      end(mine, "");
    } catch (error) {
      if (error.name !== "AbortError") end(mine, error.message);
    }
  }

  function present(one) {
    shown = one;
    comparison.clear(one.preview);
    one.answers.forEach((answer, i) => comparison.put(i, answer));
    document.querySelectorAll(".samples button").forEach((other) => other.setAttribute("aria-pressed", other === one.button));
    offer();
  }

  function put(mine, i, answer) {
    if (mine.before) URL.revokeObjectURL(mine.before.url);
    mine.before = null;
    mine.answers[i] = answer.error ? answer : { image: mine.url, ...answer };
    comparison.put(i, mine.answers[i]);
    offer();
    bring(mine.arrive);
    mine.arrive = false;
  }

  // What can be done with captions once there are some.
  function offer() {
    find("#save").hidden = own.hidden = !comparison.viewer();
    own.elements.back.hidden = !shown.captions;
    comparison.place();
  }

  // Shows what each captioner makes of a sentence of the user's about the photograph.
  async function explain(sentence) {
    const mine = shown;
    say("");
    find("#results").setAttribute("aria-busy", true);
    const answers = await Promise.all(page.models.map((model) =>
      SatEngine.explain(mine.image, { model, sentence, signal: new AbortController().signal }).catch((error) => ({ error: error.message }))));
    if (mine !== shown || mine !== asked) return;
    find("#results").setAttribute("aria-busy", false);
    if (answers.every(({ error }) => error)) return say(answers[0].error);
    mine.captions ??= [...mine.answers];
    comparison.clear(mine.preview);
    answers.forEach((answer, i) => put(mine, i, answer));
    own.elements.sentence.focus({ preventScroll: true });
  }

  function bring(arrive) {
    const results = find("#results");
    const { top } = results.getBoundingClientRect();
    if (arrive && (top < 0 || top > innerHeight / 2.5)) results.scrollIntoView({ block: "start" });
  }

  function end(mine, message) {
    if (mine !== asked) return;
    mine.stop.abort();
    if (mine.before) {
      URL.revokeObjectURL(mine.url);
      present(mine.before);
    }
    find("#results").setAttribute("aria-busy", false);
    find("#loading").hidden = true;
    say(message);
  }

  function save(blob, ending) {
    const url = URL.createObjectURL(blob);
    element("a", { href: url, download: `caption.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // The captions on the page as one file that needs no network.
  async function asPage() {
    const [css, js] = await Promise.all(["css", "js"].map(async (kind) => (await fetch(`assets/viewer.${kind}`)).text()));
    const url = await new Promise((done) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.readAsDataURL(shown.image);
    });
    const embed = (image) => (image === shown.url ? url : image);
    const answers = comparison.answers.filter(Boolean).map((answer) => ({ ...answer, image: embed(answer.image) }));
    const data = JSON.stringify(answers).replaceAll("<", "\\u003c");
    const script = `const answers = JSON.parse(document.querySelector("#data").textContent);
const comparison = new SatViewer.Comparison(document.querySelector("main"), answers.map((answer) => answer.kind));
comparison.clear();
answers.forEach((answer, i) => comparison.put(i, answer));`;
    return new Blob([`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Where did it look?</title><style>${css}</style></head>
<body><h1>Where did it look?</h1><main></main>
<script type="application/json" id="data">${data}</` + `script><script>${js}${script}</` + "script></body></html>"], { type: "text/html" });
  }

  start();
})();
