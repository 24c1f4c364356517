// The page of `smallvit app`: images are sent one after the other, and what comes back is shown. Names are set as text, never as markup.
const { bounds } = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const [drop, files, answers, state] = ["drop", "files", "answers", "state"].map(find);
const FEW = 5;
const waiting = [];
let busy = false;
let last = null; // the answer that was shown last

function make(tag, words = "", kind = "") {
  const made = document.createElement(tag);
  made.textContent = words;
  if (kind) made.className = kind;
  return made;
}

const percent = (share) => `${(100 * share).toFixed(1)}%`;

function copy(template, name) {
  const section = find(template).content.firstElementChild.cloneNode(true);
  const part = (role) => section.querySelector(`[data-role="${role}"]`);
  part("name").textContent = name;
  return [section, part];
}

function trouble(name, said) {
  const [section, part] = copy("trouble", name);
  part("said").textContent = said;
  return section;
}

// ---- one answer ----

function classRow([label, probability]) {
  const row = make("tr");
  const bar = make("span", "", "bar");
  bar.append(make("span"));
  bar.firstElementChild.style.width = percent(probability);
  const cell = make("td", "", "grow");
  cell.append(bar);
  row.append(make("th", label, "name"), cell, make("td", percent(probability), "num"));
  return row;
}

function showClasses(part, classes) {
  if (!classes.length) {
    part("classes").hidden = part("hanging").hidden = true;
    return;
  }
  const [label, probability] = classes[0];
  part("said").append(make("b", label, "name"), ` with ${percent(probability)}`);
  part("rows").append(...classes.slice(0, FEW).map(classRow));
  if (classes.length > FEW) {
    part("more").hidden = false;
    part("more").firstElementChild.textContent = `${classes.length - FEW} more`;
    part("more-rows").append(...classes.slice(FEW).map(classRow));
  }
}

function paint(canvas, picture, small, mask) {
  const pen = canvas.getContext("2d");
  pen.globalAlpha = 1;
  pen.imageSmoothingEnabled = !small;
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  if (!mask) return;
  pen.imageSmoothingEnabled = true;
  pen.globalAlpha = 0.6;
  pen.drawImage(shade(mask), 0, 0, canvas.width, canvas.height);
}

function showHanging(part, answer, picture) {
  if (!answer.hangs_on) return;
  const { mask, most } = answer.hangs_on;
  const [label] = answer.classes[0];
  const little = most < 0.01;
  paint(part("hangs-on"), picture, answer.image.small, little ? null : mask);
  const said = little
    ? "what the answer hangs on: no single part; whichever quarter of the side is hidden, it hardly changes"
    : `what the answer hangs on: yellow, when hidden, costs ${label} up to ${(100 * most).toFixed(0)} points`;
  part("hangs-on-said").textContent = said;
  part("hangs-on").setAttribute("aria-label", said);
}

function showNear(part, { nearest, missing, classes }) {
  const label = classes.length ? classes[0][0] : null;
  const same = nearest.filter((one) => one.label === label).length;
  const said = [];
  if (nearest.length && label !== null) said.push(`${same} of the ${nearest.length} that its features are most like have the label ${label}.`);
  if (nearest.length && nearest[0].similarity > 0.9999) said.push("The first is this very image, or as good as: it was trained on it.");
  if (missing) said.push(nearest.length ? `They are named without their pictures: ${missing}` : missing);
  part("near-said").textContent = said.join(" ");
  part("near").append(...nearest.map((one) => {
    const card = make("li");
    if (one.image) {
      const image = Object.assign(make("img", "", one.image.small ? "pixels" : ""), { src: one.image.uri, alt: `Training image of ${one.label}` });
      card.append(image);
    }
    const name = make("p", "", "short");
    name.append(make("b", one.label, label === null || one.label === label ? "name" : "name other"));
    const file = make("p", one.file, "file name");
    file.title = one.file;
    card.append(name, make("p", `similarity ${one.similarity.toFixed(3)}`, "soft"), file);
    return card;
  }));
}

function showLooks(part, answer, picture) {
  const { attends, who, layers, kinds } = answer.looks;
  if (!kinds.length) {
    ["looks-title", "looks-said", "kinds"].forEach((role) => { part(role).hidden = true; });
    return;
  }
  part("looks-title").textContent = attends ? "Where it looks" : "Where its layers respond";
  part("looks-said").textContent = attends
    ? `What ${who === "cells" ? "all cells on average attend" : "the class token attends"} to, in every layer with attention. Yellow is the most that the layer gives to a cell, whether that is much or hardly more than the others get. Rollout follows attention back through the layers before.`
    : "This model has no attention that could be shown. Instead: how large the values of a layer are on average over its channels. That tells where a layer responds, not what the answer comes from; the picture above does.";
  const choice = part("kind");
  choice.append(...kinds.map((kind, i) => Object.assign(make("option", kind.name), { value: i })));
  part("kinds").hidden = kinds.length < 2;
  const canvases = layers.map((layer) => {
    const card = make("li");
    const canvas = Object.assign(make("canvas"), { width: 128, height: 128 });
    canvas.setAttribute("role", "img");
    card.append(canvas, make("p", layer, "file name"));
    part("layers").append(card);
    return canvas;
  });
  const draw = () => {
    const { name, masks } = kinds[Number(choice.value)];
    canvases.forEach((canvas, i) => {
      paint(canvas, picture, answer.image.small, masks[i]);
      canvas.setAttribute("aria-label", `${layers[i]}, ${name}`);
    });
  };
  choice.addEventListener("input", draw);
  draw();
}

async function shown(name, answer) {
  const [section, part] = copy("answer", name);
  const picture = Object.assign(new Image(), { src: answer.image.uri });
  await picture.decode();
  paint(part("image"), picture, answer.image.small);
  showClasses(part, answer.classes);
  showHanging(part, answer, picture);
  showNear(part, answer);
  showLooks(part, answer, picture);
  return section;
}

// ---- asking ----

async function ask(name, content) {
  if (content.size > bounds.file_bytes) return trouble(name, bounds.too_large);
  try {
    const response = await fetch("/answer", { method: "POST", body: content, headers: { "Content-Type": "application/octet-stream" } });
    const answer = await response.json();
    return answer.error ? trouble(name, answer.error) : await shown(name, answer);
  } catch {
    return trouble(name, "smallvit does not answer. Is `smallvit app` still running?");
  }
}

// The newest on top; files that came together in their order; a frame of the webcam where the one before was.
function place(section, batch, replaced) {
  if (replaced && replaced.isConnected) replaced.replaceWith(section);
  else if (batch.last && batch.last.isConnected) batch.last.after(section);
  else answers.prepend(section);
  batch.last = last = section;
  find("clear").hidden = false;
}

async function work() {
  if (busy) return;
  busy = true;
  while (waiting.length) {
    const { name, content, batch, replaced } = waiting.shift();
    state.value = `looking at ${name}${waiting.length ? `, ${waiting.length} more to come` : ""} ...`;
    place(await ask(name, content), batch, replaced);
  }
  state.value = "";
  busy = false;
}

function take(list) {
  const chosen = [...list];
  const batch = {};
  if (chosen.length > bounds.files) place(trouble(`${chosen.length} files`, `The page takes ${bounds.files} files at a time: it looks at the first ${bounds.files}, drop the others again.`), batch);
  chosen.slice(0, bounds.files).forEach((file) => waiting.push({ name: file.name, content: file, batch }));
  work();
}

files.addEventListener("change", () => { take(files.files); files.value = ""; });
for (const kind of ["dragenter", "dragover"]) document.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
document.addEventListener("drop", (event) => { event.preventDefault(); drop.classList.remove("over"); take(event.dataTransfer.files); });
document.addEventListener("paste", (event) => { if (event.clipboardData.files.length) take(event.clipboardData.files); });
find("clear").addEventListener("click", () => { answers.replaceChildren(); find("clear").hidden = true; });

// ---- the webcam ----

let stream = null;
const video = find("video");

async function snap(replaced) {
  if (!stream || busy) return;
  const frame = Object.assign(make("canvas"), { width: video.videoWidth, height: video.videoHeight });
  frame.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise((done) => { frame.toBlob(done, "image/jpeg", 0.92); });
  if (!blob) return;
  waiting.push({ name: `webcam, ${new Date().toLocaleTimeString()}`, content: blob, batch: {}, replaced });
  await work();
}

async function keepLooking() {
  let before = null;
  while (stream && find("keep").checked) {
    await snap(before);
    before = last;
    await new Promise((done) => { setTimeout(done, 300); });
  }
}

find("camera").addEventListener("click", async () => {
  if (!navigator.mediaDevices) {
    state.value = "The browser gives the webcam to pages of this computer only: open the page at 127.0.0.1.";
    return;
  }
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: true });
    video.srcObject = stream;
    await video.play();
    find("live").hidden = false;
    find("camera").hidden = true;
    state.value = "";
  } catch (error) {
    state.value = `The webcam cannot be used: ${error.message || error.name}.`;
  }
});
find("take").addEventListener("click", () => snap(null));
find("keep").addEventListener("input", keepLooking);
find("stop").addEventListener("click", () => {
  if (stream) stream.getTracks().forEach((track) => track.stop());
  stream = null;
  video.srcObject = null;
  find("keep").checked = false;
  find("live").hidden = true;
  find("camera").hidden = false;
});
