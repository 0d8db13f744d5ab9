// The controls: buttons, sliders, cards and keys. Everything that comes from data is put in as text.

const GROUP_KEYS = 'zxcvb';
const SLIDERS = ['blocks', 'gravity', 'friction', 'fluid'];
const $ = (id) => document.getElementById(id);

/** Keys in the order of the help; `run` gets the app. */
const KEYS = [
  { keys: '1 – 9, 0', text: 'start a skill; with Shift: switch without starting again' },
  { keys: 'a', text: 'all skills at once', run: (app) => app.showAll() },
  { keys: 'g', text: 'at work: go to a goal', run: (app) => app.toWork() },
  { keys: 'i j k l', text: 'move the goal' },
  { keys: 'z x c v b', text: 'break or mend a limb' },
  { keys: 'm', text: 'mend all', run: (app) => app.mend() },
  { keys: 'p', text: 'push', run: (app) => app.push() },
  { keys: ', .', text: 'fewer or more blocks gone', run: (app, key) => app.nudge('blocks', key === ',' ? -1 : 1) },
  { keys: '[ ]', text: 'less or more gravity', run: (app, key) => app.nudge('gravity', key === '[' ? -0.1 : 0.1) },
  { keys: '; \'', text: 'less or more friction, or water', run: (app, key) => app.nudge(app.world.about.controls.fluid ? 'fluid' : 'friction', key === ';' ? -0.1 : 0.1) },
  { keys: 'space', text: 'pause', run: (app) => app.pause() },
  { keys: 's', text: 'one step', run: (app) => app.step() },
  { keys: 'r', text: 'restart', run: (app) => app.restart() },
  { keys: 'n', text: 'another start', run: (app) => app.newStart() },
  { keys: '- +', text: 'slower or faster', run: (app, key) => app.nudge('speed', key === '-' ? -1 : 1) },
  { keys: 'o', text: 'next method or seed', run: (app) => app.nextRun() },
  { keys: 'arrows', text: 'turn' },
  { keys: 'page up, down', text: 'zoom' },
  { keys: 'f', text: 'camera as at first', run: (app) => app.resetCamera() },
  { keys: 'u', text: 'copy the link', run: (app) => app.copyLink() },
  { keys: 'h', text: 'this help', run: (app) => app.panel.help() },
];
const MOVES = { i: [0, 1], k: [0, -1], j: [-1, 0], l: [1, 0] };
const TURNS = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, 0.08], ArrowDown: [0, -0.08] };

export class Panel {
  constructor(app) {
    this.app = app;
    const { data } = app;
    $('title').textContent = data.env.replaceAll('_', ' ');
    $('physics').textContent = `This page runs MuJoCo ${data.physics.page} in your browser; numbers marked native come from MuJoCo ${data.physics.native}. Directions agree, distances differ: versions differ, and walking is chaotic.`;
    this.buildRuns();
    this.buildGroups();
    this.buildSliders();
    this.buildKeys();
    this.wire();
  }

  buildRuns() {
    const { data } = this.app;
    data.runs.forEach(({ label }, index) => $('run').append(new Option(label, String(index))));
    $('run').hidden = data.runs.length < 2;
    $('run').addEventListener('change', () => this.app.chooseRun(Number($('run').value)));
  }

  buildGroups() {
    const { groups } = this.app.world.about;
    $('groups').hidden = !groups.length;
    const shared = groups.every(({ name }) => name.endsWith(' leg')) ? ' leg' : '';
    // A world without named legs has motors: thrusters of the point robot, joints of the Hopper.
    this.breakable = groups.length ? (shared ? 'leg' : 'motor') : '';
    $('groups').querySelector('legend').textContent = `Break a ${this.breakable}`;
    groups.forEach(({ name }, index) => {
      const button = document.createElement('button');
      button.textContent = name.slice(0, name.length - shared.length);
      button.setAttribute('aria-label', `break ${name}`);
      button.title = `break or mend (${GROUP_KEYS[index] ?? 'click'})`;
      button.addEventListener('click', () => this.app.toggle(index));
      $('groups').querySelector('.buttons').append(button);
    });
  }

  buildSliders() {
    const { blocks, controls } = this.app.world.about;
    const there = { ...controls, blocks: blocks.length > 0 };
    $('blocks').max = String(blocks.length);
    for (const name of SLIDERS) {
      $(`${name}-field`).hidden = !there[name];
      $(name).addEventListener('input', () => this.app.set(name, Number($(name).value)));
    }
    $('speed').addEventListener('input', () => this.app.set('speed', Number($('speed').value)));
  }

  buildKeys() {
    for (const { keys, text } of KEYS) {
      const row = $('keys').querySelector('table').insertRow();
      const key = document.createElement('kbd');
      key.textContent = keys;
      row.insertCell().append(key);
      row.insertCell().textContent = text;
    }
  }

  wire() {
    const { app } = this;
    const clicks = {
      all: () => app.showAll(), one: () => app.choose(app.state.skill), work: () => app.toWork(), pause: () => app.pause(), step: () => app.step(),
      restart: () => app.restart(), new: () => app.newStart(), push: () => app.push(), mend: () => app.mend(), link: () => app.copyLink(),
      help: () => this.help(), close: () => this.help(), more: () => this.open(),
    };
    for (const [id, run] of Object.entries(clicks)) $(id).addEventListener('click', run);
    // A button that was clicked would take the next space for itself.
    document.addEventListener('click', (event) => event.detail && event.target.closest?.('button')?.blur());
    document.addEventListener('keydown', (event) => this.key(event));
  }

  key(event) {
    const { app } = this;
    const { key } = event;
    const inField = event.target.matches?.('input, select');
    if (event.ctrlKey || event.metaKey || event.altKey || (inField && /^(Arrow|Page|Home|End)/.test(key))) return;
    if (key === ' ' && event.target.matches?.('button')) return;
    const digit = /^Digit(\d)$/.exec(event.code)?.[1] ?? (/^\d$/.test(key) ? key : undefined);
    if (digit !== undefined) {
      const skill = (Number(digit) + 9) % 10;
      if (event.shiftKey) app.switchTo(skill);
      else app.choose(skill);
    } else if (GROUP_KEYS.includes(key)) app.toggle(GROUP_KEYS.indexOf(key));
    else if (key in MOVES) app.moveGoal(MOVES[key]);
    else if (key in TURNS) app.turn(...TURNS[key]);
    else if (key === 'PageUp' || key === 'PageDown') app.zoom(key === 'PageUp' ? 0.85 : 1 / 0.85);
    else {
      const name = { ' ': 'space', '=': '+', '?': 'h', _: '-' }[key] ?? key;
      const found = KEYS.find(({ keys, run }) => run && keys.split(' ').includes(name));
      if (!found) return;
      found.run(app, name);
    }
    event.preventDefault();
  }

  help() {
    if ($('keys').open) $('keys').close();
    else $('keys').showModal();
  }

  open() {
    const open = document.body.classList.toggle('open');
    $('more').setAttribute('aria-expanded', String(open));
  }

  toast(text) {
    $('toast').textContent = text;
    $('toast').hidden = false;
    clearTimeout(this.toasting);
    this.toasting = setTimeout(() => ($('toast').hidden = true), 2600);
  }

  /** Make the cards of a run's skills. */
  buildCards() {
    const { app } = this;
    const { run } = app;
    $('cards').replaceChildren();
    this.cards = run.names.map((name, skill) => {
      const [item, button, number] = ['li', 'button', 'b'].map((tag) => document.createElement(tag));
      const [now, was] = ['now', 'was'].map((each) => Object.assign(document.createElement('span'), { className: each }));
      button.style.borderLeftColor = app.colourOf(skill);
      number.textContent = name;
      const moved = run.native[skill].moved;
      was.textContent = `native ${metres(Math.hypot(...moved))}`;
      button.append(number, arrow(moved, app.colourOf(skill)), now, was);
      button.title = `skill ${name} (index ${skill})`;
      button.setAttribute('aria-label', button.title);
      button.addEventListener('click', (event) => (event.shiftKey ? app.switchTo(skill) : app.choose(skill)));
      item.append(button);
      $('cards').append(item);
      return { item, button, now };
    });
    $('about').textContent = `${run.names.length} skills learned without rewards.`;
    if (this.breakable) $('about').textContent += ` Break a ${this.breakable} and see what they still can do.`;
    if (app.data.missing.length) $('about').textContent += ` Left out for size: ${app.data.missing.join('; ')}.`;
    $('run').value = String(app.state.run);
  }

  /** Show the state as it is. */
  show() {
    const { app } = this;
    const { state } = app;
    for (const mode of ['all', 'one', 'work']) $(mode).setAttribute('aria-pressed', String(state.mode === mode));
    [...$('groups').querySelectorAll('button')].forEach((button, index) => button.setAttribute('aria-pressed', String(state.broken.has(index))));
    for (const name of SLIDERS) {
      $(name).value = String(state[name]);
      $(`${name}-value`).textContent = name === 'blocks' ? `${state.blocks} of ${app.world.about.blocks.length}` : `${state[name].toFixed(2)} ×`;
    }
    $('speed').value = String(state.speed);
    $('speed-value').textContent = state.speed < 0 ? `1/${2 ** -state.speed}×` : `${2 ** state.speed}×`;
    $('pause').textContent = state.paused ? '▶' : '❚❚';
    $('pause').setAttribute('aria-label', state.paused ? 'run' : 'pause');
    $('hint').textContent = state.mode !== 'work' ? '' : state.goal ? app.chooser() : 'Click the floor to set a goal.';
    $('scene').classList.toggle('goal', state.mode === 'work');
    this.cards.forEach(({ item, button }, skill) => {
      const on = state.mode !== 'all' && skill === app.actors[0].skill;
      if (on && button.getAttribute('aria-pressed') !== 'true') this.reveal(item);
      button.setAttribute('aria-pressed', String(on));
      item.classList.toggle('other', state.mode !== 'all' && !on);
    });
  }

  /** Bring a card into view where there is no room for all, without moving anything else. */
  reveal(item) {
    const box = $('cards');
    if (item.offsetLeft < box.scrollLeft) box.scrollLeft = item.offsetLeft - 8;
    else box.scrollLeft = Math.max(box.scrollLeft, item.offsetLeft + item.offsetWidth - box.clientWidth + 8);
  }

  /** What changes all the time: the clock, and how far each robot has got. */
  tick() {
    const { app } = this;
    $('clock').textContent = `${app.actors[0].robot.time.toFixed(1)} s`;
    const far = new Map(app.actors.map((actor) => [actor.skill, metres(app.distance(actor))]));
    this.cards.forEach(({ now }, skill) => (now.textContent = far.get(skill) ?? '–'));
    $('rate').textContent = app.rateText();
  }
}

export function metres(value) {
  return `${value.toFixed(value < 9.95 ? 1 : 0)} m`;
}

/** An arrow along a displacement; a dot where there is hardly any. */
function arrow([x, y], colour) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '-10 -10 20 20');
  const stands = Math.hypot(x, y) < 1;
  const shape = document.createElementNS(space, stands ? 'circle' : 'path');
  if (stands) shape.setAttribute('r', '3');
  else {
    shape.setAttribute('d', 'M-8,-1.3 H2 V-5.5 L9,0 L2,5.5 V1.3 H-8 Z');
    shape.setAttribute('transform', `rotate(${(-Math.atan2(y, x) * 180) / Math.PI})`);
  }
  shape.setAttribute('fill', colour);
  svg.append(shape);
  return svg;
}
