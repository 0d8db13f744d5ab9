// The page: what is shown, how time passes, and what a visitor does to it.
import { Controller, Policy, unpack, widen } from './policy.mjs';
import { World } from './world.mjs';
import { Scene, linear, pick, rendererName, softwareRendering } from './scene.mjs';
import { Map2D } from './map.mjs';
import { Panel, metres } from './panel.mjs';

const DEFAULTS = { run: 0, mode: 'all', skill: 0, start: 0, gravity: 1, friction: 1, fluid: 1, speed: 0 };
const LIMITS = { gravity: [0, 3], friction: [0, 3], fluid: [0, 3], speed: [-3, 3] };
const AHEAD_SECONDS = 1; // between two decisions at work, and how far each skill is tried in thought
const ARRIVED = 0.75; // metres
const PHYSICS_MS = 40; // of a frame at most, or half of its time where frames are slow

export class App {
  constructor(data, mujoco, files, values) {
    this.data = data;
    this.world = new World(mujoco, data.world, files);
    this.flat = data.world.position.entries.length === 1;
    this.policies = data.runs.map(({ policy }, index) => new Policy(policy, values[index].policy));
    this.controllers = data.runs.map(({ controller }, index) => (controller ? new Controller(controller, values[index].controller) : null));
    this.state = { ...DEFAULTS, broken: new Set(), blocks: 0, goal: null, paused: false };
    this.actors = [];
    this.memory = new Map(); // the last path of each skill that was seen, for the map
    this.rate = { frames: 0, simulated: 0, busy: 0, since: performance.now(), text: '' };
    this.owed = 0;
    this.read();
    this.scene = this.makeScene();
    this.map = new Map2D(document.getElementById('map'), this.flat);
    this.panel = new Panel(this);
    this.resetCamera();
    this.populate();
    this.listen();
  }

  makeScene() {
    try {
      const scene = new Scene(document.getElementById('scene'), this.world.model, this.world.about.floor);
      if (softwareRendering()) scene.scale = 0.75;
      return scene;
    } catch (error) {
      document.getElementById('hint').textContent = `${error.message}: only the map is drawn`;
      return null;
    }
  }

  get run() {
    return this.data.runs[this.state.run];
  }

  get policy() {
    return this.policies[this.state.run];
  }

  colourOf(skill) {
    return this.data.palette[skill % this.data.palette.length];
  }

  // What is shown.

  /** Robots for the mode: one for each skill, or one. All begin at the same start. */
  populate() {
    const { mode, skill } = this.state;
    const skills = mode === 'all' ? this.run.names.map((_, index) => index) : [skill];
    this.world.populate(skills.length);
    const gap = this.flat && skills.length > 1 ? 1.1 : 0;
    const ribbons = this.actors.map(({ path }) => path);
    this.actors = skills.map((each, index) => ({
      robot: this.world.robots[index],
      skill: each,
      offset: gap * ((skills.length - 1) / 2 - index),
      path: ribbons[index] ?? this.scene?.newPath(),
      colour: linear(this.colourOf(each)),
      points: [],
      dead: new Set(),
      dim: false,
    }));
    if (this.panel.run !== this.state.run) {
      this.panel.buildCards();
      this.panel.run = this.state.run;
      this.memory.clear();
    }
    this.labels();
    this.applyWorld();
    this.begin();
  }

  /** Put every robot back to the chosen start. */
  begin() {
    const start = this.world.about.starts[this.state.start];
    this.plan = null;
    this.owed = 0;
    for (const actor of this.actors) {
      actor.robot.reset(start);
      actor.points = [];
      actor.path?.clear();
      this.trace(actor);
    }
    this.write();
    this.panel.show();
    this.panel.tick();
    this.wake();
  }

  applyWorld() {
    const { broken, gravity, friction, fluid, blocks } = this.state;
    this.world.break(broken);
    this.world.setGravity(gravity);
    this.world.setFriction(friction);
    this.world.setFluid(fluid);
    this.world.removeBlocks(blocks);
    const dead = new Set([...broken].flatMap((group) => this.world.about.groups[group].geoms));
    for (const actor of this.actors) actor.dead = dead;
    this.plan = null; // it was made for another world
  }

  labels() {
    const box = document.getElementById('labels');
    box.replaceChildren();
    for (const actor of this.actors) {
      actor.label = document.createElement('span');
      actor.label.textContent = this.run.names[actor.skill];
      actor.label.style.background = this.colourOf(actor.skill);
      actor.label.hidden = this.state.mode !== 'all';
      box.append(actor.label);
    }
  }

  // What a visitor does.

  choose(skill) {
    if (skill >= this.run.names.length) return;
    Object.assign(this.state, { mode: 'one', skill });
    this.populate();
    this.frameCamera();
  }

  /** Another skill from now on, where the robot is. */
  switchTo(skill) {
    if (skill >= this.run.names.length) return;
    if (this.state.mode === 'all') this.choose(skill);
    this.state.skill = skill;
    this.setSkill(this.actors[0], skill);
    this.write();
    this.panel.show();
  }

  setSkill(actor, skill) {
    if (actor.skill === skill) return;
    actor.skill = skill;
    actor.colour = linear(this.colourOf(skill));
  }

  showAll() {
    this.state.mode = 'all';
    this.populate();
    this.frameCamera();
  }

  toWork(goal = this.state.goal) {
    const fresh = this.state.mode !== 'work';
    this.state.mode = 'work';
    this.state.goal = goal;
    if (fresh) {
      this.populate();
      this.frameCamera();
    }
    this.plan = null;
    this.write();
    this.panel.show();
  }

  moveGoal([dx, dy]) {
    const from = this.state.goal ?? this.planar(this.actors[0]);
    this.toWork([from[0] + dx, this.flat ? 0 : from[1] + dy]);
  }

  toggle(group) {
    if (group >= this.world.about.groups.length) return;
    const { broken } = this.state;
    if (!broken.delete(group)) broken.add(group);
    this.changed();
  }

  mend() {
    Object.assign(this.state, { broken: new Set(), gravity: 1, friction: 1, fluid: 1 });
    this.changed();
  }

  set(name, value) {
    const [least, most] = name === 'blocks' ? [0, this.world.about.blocks.length] : LIMITS[name];
    this.state[name] = Math.min(most, Math.max(least, Math.round(value * 100) / 100));
    this.changed();
  }

  nudge(name, by) {
    this.set(name, this.state[name] + by);
  }

  changed() {
    this.wake();
    this.applyWorld();
    this.write();
    this.panel.show();
  }

  pause() {
    this.state.paused = !this.state.paused;
    this.panel.show();
  }

  step() {
    this.state.paused = true;
    this.advance(this.world.dt);
    this.panel.show();
    this.panel.tick();
  }

  restart() {
    this.begin();
  }

  newStart() {
    this.state.start = (this.state.start + 1) % this.world.about.starts.length;
    this.begin();
  }

  chooseRun(run) {
    this.state.run = run;
    this.state.skill = Math.min(this.state.skill, this.run.names.length - 1);
    this.populate();
  }

  nextRun() {
    this.chooseRun((this.state.run + 1) % this.data.runs.length);
  }

  /** Shove every robot away from the viewer; along the track where there is one coordinate. */
  push() {
    const yaw = this.scene?.camera.yaw ?? 0;
    const away = this.flat ? [1, 0] : [-Math.cos(yaw), -Math.sin(yaw)];
    for (const { robot } of this.actors) robot.push(away, 3);
    this.plan = null;
  }

  async copyLink() {
    this.write();
    const text = location.href;
    try {
      await navigator.clipboard.writeText(text);
      this.panel.toast('Link copied.');
    } catch {
      this.panel.toast(text); // a page from disk may not write to the clipboard
    }
  }

  // The link: skill, world and start, as a fragment.

  write() {
    const { state } = this;
    const said = new URLSearchParams();
    for (const name of ['run', 'start', 'skill']) if (state[name]) said.set(name, String(state[name] + 1));
    if (state.mode !== 'all') said.set('mode', state.mode);
    if (state.broken.size !== this.world.about.broken.length || this.world.about.broken.some((group) => !state.broken.has(group))) {
      said.set('broken', [...state.broken].sort().map((group) => group + 1).join('.'));
    }
    for (const name of ['gravity', 'friction', 'fluid', 'speed']) if (state[name] !== DEFAULTS[name]) said.set(name, String(state[name]));
    if (state.blocks !== this.blocksAtFirst()) said.set('blocks', String(state.blocks));
    if (state.mode === 'work' && state.goal) said.set('goal', state.goal.map((each) => each.toFixed(2)).join('_'));
    const text = `#${said}`;
    if (text !== (location.hash || '#')) history.replaceState(null, '', text);
  }

  /** Take the state from the fragment; whatever makes no sense there is left out. */
  read() {
    const said = new URLSearchParams(location.hash.slice(1));
    const { state, world, data } = this;
    const number = (name, least, most, fallback) => {
      const value = Number(said.get(name) ?? NaN);
      return value >= least && value <= most ? value : fallback;
    };
    const count = (name, many) => Math.floor(number(name, 1, many, 1)) - 1;
    state.run = count('run', data.runs.length);
    state.skill = count('skill', this.run.names.length);
    state.start = count('start', world.about.starts.length);
    state.mode = ['one', 'work'].includes(said.get('mode')) ? said.get('mode') : 'all';
    const groups = (said.get('broken') ?? '').split('.').map((each) => Number(each) - 1);
    state.broken = new Set(said.has('broken') ? groups.filter((each) => world.about.groups[each]) : world.about.broken);
    for (const name of ['gravity', 'friction', 'fluid', 'speed']) state[name] = number(name, ...LIMITS[name], DEFAULTS[name]);
    state.blocks = Math.floor(number('blocks', 0, world.about.blocks.length, this.blocksAtFirst()));
    const goal = (said.get('goal') ?? '').split('_').map(Number);
    state.goal = goal.length === 2 && goal.every(Number.isFinite) ? goal : null;
  }

  /** Half of them gone: one sees both what they stop and what they let through. */
  blocksAtFirst() {
    return Math.floor(this.world.about.blocks.length / 2);
  }

  // Time.

  /** Let so many seconds pass at once. */
  advance(seconds) {
    for (let left = Math.round(seconds / this.world.timestep); left > 0; left--) this.substep();
  }

  substep() {
    for (const actor of this.actors) {
      if (actor.robot.phase === 0 && this.state.mode === 'work' && this.state.goal) this.decide(actor);
      if (actor.robot.substep(this.policy, actor.skill)) this.trace(actor);
    }
    const horizon = this.data.horizon * this.world.dt;
    if (this.state.mode === 'all' && this.actors[0].robot.time >= horizon - 1e-9) this.begin();
  }

  trace(actor) {
    if (!actor.robot.sound()) return void actor.robot.reset(this.world.about.starts[this.state.start]);
    const [x, y] = this.planar(actor);
    const last = actor.points.at(-1);
    if (last && Math.hypot(x - last[0], y - last[1]) < 0.04) return;
    actor.points.push([x, y]);
    actor.path?.add(x, y, 0);
    if (this.state.mode !== 'work') this.memory.set(actor.skill, actor.points);
  }

  planar({ robot }) {
    const [x, y = 0] = robot.position();
    return [x, y];
  }

  distance({ robot }) {
    return Math.hypot(...robot.position().map((each, i) => each - robot.start[i]));
  }

  // At work: which skill next?

  decide(actor) {
    const controller = this.controllers[this.state.run];
    const { goal } = this.state;
    const robot = actor.robot;
    if (controller) {
      const step = Math.round(robot.time / this.world.dt);
      const to = robot.position().map((each, i) => goal[i] - each);
      if (step % controller.steps === 0) this.setSkill(actor, controller.choose(robot.observe(), to));
      return;
    }
    this.plan ??= this.newPlan(actor);
    const { plan } = this;
    // One skill is tried in thought at each step, so that no frame has to wait for all of them.
    for (let i = 0; i < plan.each && plan.ends.length < this.run.names.length; i++) this.imagine(plan, plan.ends.length);
    if (--plan.left > 0) return;
    const score = plan.ends.map(([x, y]) => Math.hypot(goal[0] - x, this.flat ? 0 : goal[1] - y));
    this.setSkill(actor, score.indexOf(Math.min(...score)));
    this.state.skill = actor.skill;
    this.plan = null;
    this.panel.show();
  }

  /** Where the robot will be when the next decision is due: physics without chance, so this is no guess. */
  newPlan(actor) {
    const steps = Math.max(1, Math.round(AHEAD_SECONDS / this.world.dt));
    this.ghost ??= this.world.newRobot();
    this.ghost.reset(actor.robot.snapshot());
    for (let i = 0; i < steps * this.world.about.frameSkip; i++) this.ghost.substep(this.policy, actor.skill);
    return { steps, left: steps, from: this.ghost.snapshot(), ends: [], paths: [], each: Math.ceil(this.run.names.length / steps) };
  }

  imagine(plan, skill) {
    this.ghost.reset(plan.from);
    const path = [this.planar({ robot: this.ghost })];
    for (let i = 0; i < plan.steps * this.world.about.frameSkip; i++) {
      if (this.ghost.substep(this.policy, skill)) path.push(this.planar({ robot: this.ghost }));
    }
    plan.ends.push(path.at(-1));
    plan.paths.push(path);
    if (plan.paths.length === this.run.names.length) this.lastPaths = plan.paths;
  }

  chooser() {
    const to = this.planar(this.actors[0]).map((each, i) => this.state.goal[i] - each);
    const left = this.flat ? Math.abs(to[0]) : Math.hypot(...to);
    if (left < ARRIVED) return 'There.';
    const by = this.controllers[this.state.run] ? 'a trained controller chooses' : 'it tries every skill in thought and takes the best';
    return `${metres(left)} to go: ${by}`;
  }

  // Frames.

  start() {
    let last = performance.now();
    const frame = (now) => {
      const elapsed = Math.min(0.5, Math.max(0, (now - last) / 1000));
      last = now;
      if (!this.state.paused) this.pass(elapsed * 2 ** this.state.speed, Math.max(PHYSICS_MS, 500 * elapsed));
      if (!this.state.paused || now < this.awake) this.draw(elapsed); // a still picture costs nothing
      this.measure();
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** Something was done: draw for a while, even if time stands still. */
  wake() {
    this.awake = performance.now() + 1500;
  }

  pass(seconds, most) {
    this.owed += seconds;
    const began = performance.now();
    while (this.owed >= this.world.timestep) {
      if (performance.now() - began > most) {
        this.owed = 0; // this machine cannot: slower than asked for, but fluent
        break;
      }
      this.substep();
      this.owed -= this.world.timestep;
      this.rate.simulated += this.world.timestep;
    }
    this.rate.busy += performance.now() - began;
  }

  /** Once a second: frames, simulated seconds, and how fast physics alone would be. */
  measure() {
    const { rate } = this;
    rate.frames++;
    const passed = (performance.now() - rate.since) / 1000;
    if (passed < 1) return;
    const most = rate.busy > 0 ? (1000 * rate.simulated) / rate.busy : 0;
    this.report = { frames: rate.frames / passed, simulated: rate.simulated / passed, most, robots: this.actors.length };
    if (this.scene && !this.state.paused) this.adapt(this.report.frames);
    this.rate = { frames: 0, simulated: 0, busy: 0, since: performance.now() };
    this.panel.tick();
    if (this.state.mode === 'work') this.panel.show();
  }

  rateText() {
    if (!this.report) return '';
    const { frames, simulated, most, robots } = this.report;
    const room = most ? ` (could do ${most.toFixed(1)})` : '';
    return `${frames.toFixed(0)} frames/s · ${simulated.toFixed(2)} simulated s per s${room} · ${robots} robot${robots > 1 ? 's' : ''}`;
  }

  /** Fewer pixels where frames come slowly. */
  adapt(frames) {
    if (document.hidden) return;
    if (frames < 24) this.scene.scale = Math.max(0.6, this.scene.scale * 0.85);
    else if (frames > 50 && this.scene.scale < 1) this.scene.scale = Math.min(1, this.scene.scale * 1.12);
  }

  draw(elapsed) {
    const ticking = Math.floor(performance.now() / 120);
    if (ticking !== this.ticked) {
      this.panel.tick();
      this.drawMap();
      this.ticked = ticking;
    }
    if (!this.scene) return;
    this.follow(elapsed);
    this.scene.draw(this.actors.map((actor) => ({ ...actor, data: actor.robot.data })), this.marks());
    if (this.state.mode === 'all') this.placeLabels();
  }

  marks() {
    const { goal, mode } = this.state;
    const far = this.scene.camera.distance;
    const marks = [{ place: [0, 0], radius: 0.016 * far, inner: 0.72, colour: [0.1, 0.12, 0.14, 0.55] }];
    if (mode !== 'work') return marks;
    (this.lastPaths ?? []).forEach((path, skill) => {
      const colour = [...linear(this.colourOf(skill)).map((each) => each ** (1 / 2.2)), 0.75];
      marks.push({ place: path.at(-1), radius: 0.008 * far, inner: 0, colour });
    });
    if (goal) {
      const pulse = 1 + 0.12 * Math.sin(performance.now() / 240);
      marks.push({ place: goal, radius: Math.max(0.35, 0.03 * far) * pulse, inner: 0.78, colour: [0.7, 0.15, 0.12, 0.95] });
      marks.push({ place: goal, radius: Math.max(0.1, 0.009 * far), inner: 0, colour: [0.7, 0.15, 0.12, 0.95] });
    }
    return marks;
  }

  placeLabels() {
    for (const actor of this.actors) {
      const [x, y] = this.planar(actor);
      const at = this.scene.project([x, y + actor.offset, this.world.about.floor + this.labelHeight()]);
      actor.label.hidden = !at;
      if (at) actor.label.style.transform = `translate(${at[0].toFixed(1)}px, ${at[1].toFixed(1)}px) translate(-50%, -100%)`;
    }
  }

  labelHeight() {
    return (this.flat ? 1.6 : 0.7) * this.size() + 0.015 * this.scene.camera.distance;
  }

  /** About how large the robot is, in metres: how far its parts reach from their middle at the start. */
  size() {
    if (this.reach) return this.reach;
    const { geom_xpos: xpos } = this.actors[0].robot.data;
    const moving = this.scene.geoms.filter(({ still }) => !still).map(({ id }) => [0, 1, 2].map((k) => xpos[3 * id + k]));
    const middle = [0, 1, 2].map((k) => moving.reduce((sum, each) => sum + each[k], 0) / moving.length);
    const far = Math.max(...moving.map((each) => Math.hypot(...each.map((value, k) => value - middle[k]))));
    this.reach = Math.max(0.4, 1.3 * far);
    return this.reach;
  }

  drawMap() {
    const blocks = this.world.about.blocks.slice(this.state.blocks).map(({ body }) => {
      const at = 3 * body, geom = this.world.model.body_geomadr[body];
      return [this.world.own.bodies[at], this.world.own.bodies[at + 1], this.world.model.geom_size[3 * geom]];
    });
    const working = this.state.mode === 'work'; // then it is about the goal, not about what skills do elsewhere
    const skills = this.run.native.map(({ paths }, skill) => {
      const actor = this.actors.find((each) => each.skill === skill);
      const native = working ? [] : paths.map((path) => path.flatMap((_, i) => (i % 2 ? [] : [[path[i], path[i + 1]]])));
      const path = working ? (actor?.points ?? []) : this.memory.get(skill) ?? [];
      return { colour: this.colourOf(skill), native, path, shown: Boolean(actor), place: actor ? this.planar(actor) : null };
    });
    const goal = working ? this.state.goal : null;
    const ahead = goal ? (this.lastPaths ?? []).map((path, lane) => ({ path, lane, colour: this.colourOf(lane) })) : [];
    this.map.draw({ skills, blocks, goal, ahead });
  }

  // The camera.

  resetCamera() {
    if (!this.scene) return;
    Object.assign(this.scene.camera, this.flat ? { yaw: -1.2, pitch: 0.3 } : { yaw: -2.1, pitch: 0.72 });
    this.frameCamera();
  }

  /** Forget the visitor's zoom. */
  frameCamera() {
    this.zoomed = 1;
    this.wish = null;
    this.jump = true;
    this.wake();
  }

  /** Keep what moves in the part of the canvas that panels leave free. */
  follow(elapsed) {
    const { scene } = this;
    const { camera, canvas } = scene;
    const { clientWidth: width, clientHeight: height } = canvas;
    const wide = width > 760;
    const edges = wide ? { left: 30, right: 296, top: 116, bottom: 196 } : { left: 16, right: 16, top: 150, bottom: 236 };
    const free = [Math.max(80, width - edges.left - edges.right), Math.max(80, height - edges.top - edges.bottom)];
    scene.shift = [(edges.left - edges.right) / width, (edges.bottom - edges.top) / height];
    const kept = { target: camera.target, distance: camera.distance };
    this.wish ??= { ...kept };
    Object.assign(camera, this.wish);
    const least = (this.actors.length > 1 ? 5 : 5.2) * this.size() + 0.6;
    const places = this.actors.map((actor) => {
      const [x, y] = this.planar(actor);
      return [x, y + actor.offset, this.world.about.floor + 0.4 * this.size()];
    });
    const { goal, mode } = this.state;
    if (mode === 'work' && goal) places.push([...goal, places[0][2]]);
    for (let i = 0; i < 3; i++) this.fit(places, free, least);
    this.wish = { target: camera.target, distance: camera.distance };
    const wanted = this.zoomed * this.wish.distance;
    const ease = (rate) => (this.jump ? 1 : 1 - Math.exp(-elapsed * rate));
    camera.target = kept.target.map((each, i) => each + ease(4.5) * (this.wish.target[i] - each));
    camera.distance = kept.distance + ease(wanted > kept.distance ? 9 : 3.5) * (wanted - kept.distance); // lose nobody
    this.jump = false;
  }

  /** One step towards a camera that has all these places in the free part: move to their middle, then go near or far. */
  fit(places, free, least) {
    const { scene } = this;
    const { camera, canvas } = scene;
    const seen = places.map((each) => scene.project(each));
    if (seen.some((each) => !each)) return void (camera.distance *= 1.5);
    const [xs, ys] = [seen.map(([x]) => x), seen.map(([, y]) => y)];
    const box = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const middle = scene.onGround((box[0] + box[1]) / 2, (box[2] + box[3]) / 2, places[0][2]);
    if (middle) camera.target = [...middle, places[0][2]];
    const share = Math.max((box[1] - box[0]) / free[0], (box[3] - box[2]) / free[1]) / 0.86;
    camera.distance = Math.min(90, Math.max(least, camera.distance * Math.max(0.5, share)));
  }

  turn(yaw, pitch) {
    if (!this.scene) return;
    const camera = this.scene.camera;
    camera.yaw += yaw;
    camera.pitch = Math.min(1.5, Math.max(0.06, camera.pitch + pitch));
  }

  zoom(factor) {
    this.wake();
    this.zoomed = Math.min(8, Math.max(0.2, this.zoomed * factor));
  }

  listen() {
    for (const event of ['pointerdown', 'pointermove', 'wheel', 'keydown', 'input', 'click', 'resize', 'hashchange']) {
      addEventListener(event, () => this.wake(), { capture: true, passive: true });
    }
    addEventListener('hashchange', () => {
      this.read();
      this.populate();
      this.frameCamera();
    });
    if (!this.scene) return;
    const { canvas } = this.scene;
    const fingers = new Map();
    let moved = 0, spread = 0;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      moved = 0;
      spread = 0;
      canvas.classList.add('dragging');
    });
    canvas.addEventListener('pointermove', (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const [dx, dy] = [event.clientX - before[0], event.clientY - before[1]];
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      moved += Math.abs(dx) + Math.abs(dy);
      if (fingers.size === 1) return this.turn(-0.006 * dx, 0.005 * dy);
      const [a, b] = [...fingers.values()];
      const now = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (spread) this.zoom(spread / now);
      spread = now;
    });
    const lift = (event) => {
      const single = fingers.size === 1 && fingers.delete(event.pointerId);
      fingers.delete(event.pointerId);
      canvas.classList.remove('dragging');
      if (single && moved < 6 && event.type === 'pointerup') this.click(event.clientX, event.clientY);
    };
    canvas.addEventListener('pointerup', lift);
    canvas.addEventListener('pointercancel', lift);
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(Math.exp(0.0012 * event.deltaY));
    }, { passive: false });
  }

  /** A limb breaks; at work the floor becomes the goal; among all skills a robot is chosen. */
  click(x, y) {
    const ray = this.scene.ray(x, y);
    for (const actor of this.actors) {
      const geom = pick(this.scene, { data: actor.robot.data, offset: actor.offset }, ray);
      if (geom === null) continue;
      if (this.state.mode === 'all') return this.choose(actor.skill);
      const group = this.world.about.groups.findIndex(({ geoms }) => geoms.includes(geom));
      if (group >= 0) return this.toggle(group);
    }
    const place = this.scene.onGround(x, y);
    if (this.state.mode === 'work' && place) this.toWork(this.flat ? [place[0], 0] : place);
  }
}

async function main() {
  const loading = document.getElementById('loading');
  try {
    const data = JSON.parse(document.getElementById('data').textContent);
    const wasm = document.getElementById('wasm');
    const wasmBinary = await unpack(wasm.textContent);
    wasm.remove();
    const said = [];
    const mujoco = await loadMujoco({ wasmBinary, print: (text) => said.push(text), printErr: (text) => said.push(text) });
    const values = await Promise.all(data.runs.map(async ({ policy, controller }) => ({
      policy: widen(await unpack(policy.weights)),
      controller: controller && new Float32Array((await unpack(controller.weights)).buffer),
    })));
    const files = Object.fromEntries(await Promise.all(Object.entries(data.world.files).map(async ([name, text]) => [name, await unpack(text)])));
    const app = new App(data, mujoco, files, values);
    app.renderer = rendererName();
    app.start();
    loading.classList.add('gone');
    app.loadedMs = performance.now(); // since navigation
    globalThis.disk = app; // for whoever opens the console, and for the tests
  } catch (error) {
    loading.classList.add('failed');
    loading.firstElementChild.textContent = `This page cannot run here: ${error.message}`;
    throw error;
  }
}

main();
