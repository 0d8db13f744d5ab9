// The world: MuJoCo's model of it, robots in it, and what can be done to them. Knows nothing of drawing.

const PUSH_SECONDS = 0.15;

export class World {
  /** `mujoco`: the loaded module; `about`: the page's description of the world; `files`: meshes by name, if any. */
  constructor(mujoco, about, files = {}) {
    this.mujoco = mujoco;
    this.about = about;
    let vfs = null;
    if (Object.keys(files).length) {
      vfs = new mujoco.MjVFS();
      for (const [name, bytes] of Object.entries(files)) vfs.addBuffer(name, bytes);
    }
    this.model = vfs ? mujoco.MjModel.from_xml_string(about.xml, vfs) : mujoco.MjModel.from_xml_string(about.xml);
    vfs?.delete();
    for (const [name, values] of Object.entries(about.exact)) {
      const own = this.model[name];
      if (own?.length === values.length) own.set(values); // another version may lay it out otherwise
    }
    this.options = this.model.opt;
    this.timestep = this.options.timestep;
    this.dt = this.timestep * about.frameSkip;
    this.mass = Array.from(this.model.body_mass).reduce((sum, each) => sum + each, 0);
    this.own = {
      gravity: Array.from(this.options.gravity),
      density: this.options.density,
      friction: Array.from(this.model.geom_friction),
      bodies: Array.from(this.model.body_pos),
    };
    this.robots = [];
    this.alive = new Float64Array(this.model.nu).fill(1); // 0: this actuator gets no control
  }

  /** Have so many robots. */
  populate(count) {
    while (this.robots.length > count) this.robots.pop().data.delete();
    while (this.robots.length < count) this.robots.push(new Robot(this));
  }

  /** A robot that is not shown, for trying things out. */
  newRobot() {
    return new Robot(this);
  }

  /** Break the groups of actuators with these numbers, mend all others. */
  break(groups) {
    this.alive.fill(1);
    for (const group of groups) for (const actuator of this.about.groups[group].actuators) this.alive[actuator] = 0;
  }

  setGravity(factor) {
    this.options.gravity.set(this.own.gravity.map((each) => factor * each));
  }

  /** A contact's friction is the larger of its two geoms', so that of all is scaled, the floor's included. */
  setFriction(factor) {
    this.model.geom_friction.set(this.own.friction.map((each) => factor * each));
  }

  setFluid(factor) {
    this.options.density = factor * this.own.density;
  }

  /** Take the first so many blocks away: they go below the floor, as in training. */
  removeBlocks(count) {
    this.about.blocks.forEach(({ body, z }, index) => {
      this.model.body_pos[3 * body + 2] = index < count ? z : this.own.bodies[3 * body + 2];
    });
    for (const robot of this.robots) this.mujoco.mj_forward(this.model, robot.data);
  }
}

export class Robot {
  constructor(world) {
    this.world = world;
    this.data = new world.mujoco.MjData(world.model);
    this.seen = new Float64Array(world.model.nq - world.about.observation.skip + world.model.nv);
    this.phase = 0; // substeps since the last action
    this.time = 0;
    this.pushed = 0; // substeps for which a push still lasts
  }

  /** Begin at one of the environment's own starts. */
  reset(start) {
    const { mujoco, model, about } = this.world;
    mujoco.mj_resetData(model, this.data);
    this.data.qpos.set(start.qpos);
    this.data.qvel.set(start.qvel);
    mujoco.mj_forward(model, this.data);
    this.phase = this.time = this.pushed = 0;
    this.start = this.position();
  }

  /** The observation, as Gymnasium builds it: positions without the first few, velocities, clipped where it clips. */
  observe() {
    const { skip, clip } = this.world.about.observation;
    const qpos = this.data.qpos, qvel = this.data.qvel;
    let at = 0;
    for (let i = skip; i < qpos.length; i++) this.seen[at++] = qpos[i];
    for (let i = 0; i < qvel.length; i++) {
      this.seen[at++] = clip === null ? qvel[i] : Math.min(clip, Math.max(-clip, qvel[i]));
    }
    return this.seen;
  }

  /** Where the robot is, [x] or [x, y], as the environment's row says. */
  position() {
    const { source, entries } = this.world.about.position;
    if (source === 'qpos') return entries.map((index) => this.data.qpos[index]);
    const { mujoco, model } = this.world;
    mujoco.mj_kinematics(model, this.data); // after mj_step places of bodies lag one substep behind
    mujoco.mj_comPos(model, this.data);
    return entries.map((axis) => this.data.subtree_com[3 + axis]);
  }

  /** What a skill of this policy sees. */
  view(policy) {
    const seen = this.observe();
    return policy.seesPosition ? [...seen, ...this.position()] : seen;
  }

  /** One substep of physics; the skill acts at the first of every `frameSkip`. True after the last of these. */
  substep(policy, skill) {
    const { mujoco, model, alive, about } = this.world;
    if (this.phase === 0) {
      const action = policy.act(skill, this.view(policy));
      const control = this.data.ctrl;
      for (let i = 0; i < control.length; i++) control[i] = action[i] * alive[i];
    }
    mujoco.mj_step(model, this.data);
    this.time += this.world.timestep;
    if (this.pushed && --this.pushed === 0) this.data.xfrc_applied.fill(0);
    this.phase = (this.phase + 1) % about.frameSkip;
    return this.phase === 0;
  }

  /** A shove that changes the velocity by `speed` m/s along the direction [x, y]. */
  push(direction, speed) {
    const { mass, timestep } = this.world;
    this.pushed = Math.max(1, Math.round(PUSH_SECONDS / timestep));
    const force = (mass * speed) / (this.pushed * timestep);
    this.data.xfrc_applied.set([force * direction[0], force * direction[1], 0], 6); // body 1 is the robot's root
  }

  /** True while all numbers are finite. */
  sound() {
    return this.data.qpos.every(Number.isFinite) && this.data.qvel.every(Number.isFinite);
  }

  snapshot() {
    return { qpos: Array.from(this.data.qpos), qvel: Array.from(this.data.qvel) };
  }
}
