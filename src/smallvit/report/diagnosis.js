// Draws attention over images and the CKA map from the JSON beside each of them.
const read = (box) => JSON.parse(box.querySelector('script[type="application/json"]').textContent);

function looks(box) {
  const data = read(box);
  const part = (role) => box.querySelector(`[data-role="${role}"]`);
  const cards = [...box.querySelectorAll(".layers li")];
  const pictures = data.images.map(({ uri }) => Object.assign(new Image(), { src: uri }));

  function draw() {
    const [image, kind, layer] = ["image", "kind", "layer"].map((role) => Number(part(role).value));
    cards.forEach((card, i) => {
      const canvas = card.querySelector("canvas");
      const pen = canvas.getContext("2d");
      pen.globalAlpha = 1;
      pen.imageSmoothingEnabled = data.images[image].width > 64;
      pen.drawImage(pictures[image], 0, 0, canvas.width, canvas.height);
      pen.imageSmoothingEnabled = true;
      pen.globalAlpha = 0.6;
      pen.drawImage(shade(data.kinds[kind].masks[image][i]), 0, 0, canvas.width, canvas.height);
      canvas.setAttribute("aria-label", `${data.captions[image]}, ${data.layers[i]}, ${data.kinds[kind].name}`);
      card.classList.toggle("chosen", i === layer);
    });
    part("shown").textContent = `Image ${image + 1} of ${data.images.length}: ${data.captions[image]}. Shown: ${data.kinds[kind].name}.`;
    part("said").value = `${data.layers[layer]} (${layer + 1} of ${data.layers.length})`;
    part("layer").setAttribute("aria-valuetext", data.layers[layer]);
  }

  box.classList.add("drawn");
  box.addEventListener("input", draw);
  Promise.all(pictures.map((picture) => picture.decode())).then(draw);
}

function similarity(box) {
  const data = read(box);
  const [rows, columns] = [data.rows.length, data.columns.length];
  const canvas = box.querySelector("canvas");
  const said = box.querySelector("output");
  const size = Math.max(4, Math.min(16, Math.floor(560 / Math.max(rows, columns))));
  Object.assign(canvas, { width: columns * size, height: rows * size });
  canvas.style.maxWidth = `${columns * size}px`;
  const pen = canvas.getContext("2d");
  const chosen = { row: 0, column: 0 };
  const top = (row) => (rows - 1 - row) * size; // the first layer is at the bottom

  function cell(row, column) {
    pen.fillStyle = `rgb(${colour(data.value[row * columns + column] / 1000).join(",")})`;
    pen.fillRect(column * size, top(row), size, size);
  }

  function choose(row, column) {
    cell(chosen.row, chosen.column);
    chosen.row = Math.min(Math.max(row, 0), rows - 1);
    chosen.column = Math.min(Math.max(column, 0), columns - 1);
    pen.strokeStyle = "#fff";
    pen.lineWidth = 2;
    pen.strokeRect(chosen.column * size + 1, top(chosen.row) + 1, size - 2, size - 2);
    const at = chosen.row * columns + chosen.column;
    const text = (values) => (values[at] / 1000).toFixed(3);
    const range = data.low ? ` (95% interval ${text(data.low)} to ${text(data.high)})` : "";
    const [one, other] = data.models;
    said.value = `${one}: ${data.rows[chosen.row]}, and ${other}: ${data.columns[chosen.column]}: ${text(data.value)}${range}`;
  }

  for (let row = 0; row < rows; row += 1) for (let column = 0; column < columns; column += 1) cell(row, column);
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const row = rows - 1 - Math.floor(((event.clientY - box.top) / box.height) * rows);
    choose(row, Math.floor(((event.clientX - box.left) / box.width) * columns));
  });
  canvas.addEventListener("focus", () => choose(chosen.row, chosen.column));
  canvas.addEventListener("keydown", (event) => {
    const ends = { Home: [0, -columns], End: [0, columns], PageUp: [rows, 0], PageDown: [-rows, 0] };
    const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], ...ends }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(chosen.row + step[0], chosen.column + step[1]);
  });
}

document.querySelectorAll(".looks").forEach(looks);
document.querySelectorAll(".cka").forEach(similarity);
