// The map: paths of all skills from above, in a small canvas. Worlds with one coordinate get a lane for each skill.

export class Map2D {
  constructor(canvas, flat) {
    Object.assign(this, { canvas, flat, context: canvas.getContext('2d'), box: null });
  }

  /** `skills`: {colour, native: paths, path: points now, place, shown}; `blocks`: [x, y, radius]; `goal`: [x, y]. */
  draw({ skills, blocks, goal, ahead }) {
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!width) return;
    if (this.canvas.width !== Math.round(width * ratio)) {
      Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    }
    const c = this.context;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const place = this.flat ? this.lanes(skills, goal, width, height) : this.plane(skills, blocks, goal, width, height);
    this.drawScale(place, width, height);
    c.lineJoin = c.lineCap = 'round';
    for (const [x, y, radius] of blocks) this.disc(place.at(x, y), Math.max(1, radius * place.scale), '#d65f00');
    skills.forEach((skill, lane) => {
      for (const path of skill.native) this.line(path, place, lane, skill.colour, skill.shown ? 0.28 : 0.13, 1);
    });
    skills.forEach((skill, lane) => this.line(skill.path, place, lane, skill.colour, skill.shown ? 1 : 0.35, skill.shown ? 2 : 1.2));
    for (const { path, colour, lane } of ahead) this.line(path, place, lane, colour, 0.6, 1);
    skills.forEach((skill, lane) => skill.shown && skill.place && this.disc(place.at(...skill.place, lane), 3.4, skill.colour, '#fff'));
    if (goal) this.cross(place.at(...goal));
  }

  plane(skills, blocks, goal, width, height) {
    const points = [[-2, -2], [2, 2], ...(goal ? [goal] : []), ...blocks.map(([x, y]) => [x, y])];
    for (const { native, path } of skills) {
      for (const each of native) points.push(...each);
      points.push(...path);
    }
    const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
    const box = this.settle([Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)]);
    const scale = Math.min((width - 28) / (box[1] - box[0]), (height - 40) / (box[3] - box[2]));
    const [cx, cy] = [(box[0] + box[1]) / 2, (box[2] + box[3]) / 2];
    return { scale, at: (x, y) => [width / 2 + (x - cx) * scale, (height - 10) / 2 - (y - cy) * scale] };
  }

  lanes(skills, goal, width, height) {
    const xs = [-1, 1, ...(goal ? [goal[0]] : [])];
    for (const { native, path } of skills) {
      for (const each of native) for (const [x] of each) xs.push(x);
      for (const [x] of path) xs.push(x);
    }
    const box = this.settle([Math.min(...xs), Math.max(...xs), 0, 1]);
    const scale = (width - 28) / (box[1] - box[0]), gap = (height - 44) / Math.max(1, skills.length);
    return { scale, at: (x, _, lane = 0) => [14 + (x - box[0]) * scale, 14 + gap * (lane + 0.5)] };
  }

  /** Grow to what is to be seen, slowly shrink. */
  settle(wanted) {
    this.box = this.box ? wanted.map((each, i) => this.box[i] + (i % 2 === (each > this.box[i] ? 1 : 0) ? 1 : 0.05) * (each - this.box[i])) : wanted;
    return this.box;
  }

  drawScale({ scale, at }, width, height) {
    const c = this.context, steps = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500];
    const metres = steps.find((each) => each * scale > 34) ?? 1000;
    const [x, y] = at(0, 0);
    c.strokeStyle = 'rgb(28 33 38 / .16)';
    c.lineWidth = 1;
    if (!this.flat) {
      for (let i = 1; i < 12; i++) this.ring([x, y], i * metres * scale);
    } else {
      for (let i = -20; i <= 20; i++) this.tick(x + i * metres * scale, height);
    }
    c.fillStyle = '#59626b';
    c.font = '11px system-ui, sans-serif';
    c.fillText(`${metres} m`, 12, height - 10);
    c.strokeStyle = '#59626b';
    c.beginPath();
    c.moveTo(44, height - 14);
    c.lineTo(44 + metres * scale, height - 14);
    c.stroke();
  }

  line(path, place, lane, colour, alpha, thickness) {
    if (path.length < 2) return;
    const c = this.context;
    c.globalAlpha = alpha;
    c.strokeStyle = colour;
    c.lineWidth = thickness;
    c.beginPath();
    path.forEach(([x, y], i) => (i ? c.lineTo(...place.at(x, y, lane)) : c.moveTo(...place.at(x, y, lane))));
    c.stroke();
    c.globalAlpha = 1;
  }

  disc([x, y], radius, fill, edge) {
    const c = this.context;
    c.beginPath();
    c.arc(x, y, radius, 0, 2 * Math.PI);
    c.fillStyle = fill;
    c.fill();
    if (!edge) return;
    c.strokeStyle = edge;
    c.lineWidth = 1.4;
    c.stroke();
  }

  ring([x, y], radius) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.stroke();
  }

  tick(x, height) {
    this.context.beginPath();
    this.context.moveTo(x, 12);
    this.context.lineTo(x, height - 30);
    this.context.stroke();
  }

  cross([x, y]) {
    const c = this.context;
    c.strokeStyle = '#b3261e';
    c.lineWidth = 2;
    c.beginPath();
    for (const [dx, dy] of [[5, 5], [5, -5]]) {
      c.moveTo(x - dx, y - dy);
      c.lineTo(x + dx, y + dy);
    }
    c.stroke();
  }
}
