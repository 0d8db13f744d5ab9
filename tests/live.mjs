// What the page's modules compute, outside a browser: node live.mjs TASK < JSON > JSON. Tests compare it with Python.
import { readFileSync } from 'node:fs';
import { Controller, Policy, unpack, widen } from '../disk/show/page/policy.mjs';
import { World } from '../disk/show/page/world.mjs';

const given = JSON.parse(readFileSync(0, 'utf8'));

async function policyOf(about) {
  return new Policy(about, widen(await unpack(about.weights)));
}

async function engine(module, wasm) {
  const { default: loadMujoco } = await import(module);
  return loadMujoco({ wasmBinary: await unpack(wasm), print: () => {}, printErr: () => {} });
}

const tasks = {
  /** Actions of every skill for every observation. */
  async act({ policy, observations }) {
    const skills = await policyOf(policy);
    return policy.which.map((_, skill) => observations.map((seen) => Array.from(skills.act(skill, seen))));
  },

  /** The skill that a controller chooses for each observation and way to the goal. */
  async choose({ controller, observations, ways }) {
    const values = new Float32Array((await unpack(controller.weights)).buffer);
    const chooser = new Controller(controller, values);
    return observations.map((seen, i) => chooser.choose(seen, ways[i]));
  },

  /** Vertices and faces of a model's meshes, which come from files beside its XML. */
  async meshes({ module, wasm, world }) {
    const mujoco = await engine(module, wasm);
    const files = Object.fromEntries(await Promise.all(Object.entries(world.files).map(async ([name, text]) => [name, await unpack(text)])));
    const { model } = new World(mujoco, world, files);
    return [model.nmeshvert, model.nmeshface];
  },

  /** For each episode: observations after each action, from each of its own states, and freely from the first. */
  async observe({ module, wasm, world, episodes }) {
    const mujoco = await engine(module, wasm);
    const robot = new World(mujoco, world).newRobot();
    const step = (action) => {
      const fixed = { act: () => action };
      while (!robot.substep(fixed, 0));
      return Array.from(robot.observe());
    };
    return episodes.map(({ states, actions }) => {
      const each = actions.map((action, i) => {
        robot.reset(states[i]);
        return step(action);
      });
      robot.reset(states[0]);
      const first = Array.from(robot.observe());
      return { first, each, free: actions.map(step) };
    });
  },
};

process.stdout.write(JSON.stringify(await tasks[process.argv[2]](given)));
