// The scene: robots, ground, soft shadows and paths, drawn with WebGL 2. Knows MuJoCo's geoms, nothing of skills.

const PLANE = 0, SPHERE = 2, CAPSULE = 3, ELLIPSOID = 4, CYLINDER = 5, BOX = 6, MESH = 7; // mjtGeom
const FLOATS = 19; // of an instance: rotation 9, place 3, size 3, colour 4
const LIGHT = normalise([-0.45, 0.38, 1]);
const PATH_POINTS = 6000;

const HEAD = '#version 300 es\nprecision highp float;\n';
const PLACED = `
layout(location=0) in vec3 position; layout(location=1) in vec3 normal; layout(location=2) in float bulge;
layout(location=3) in vec3 row0; layout(location=4) in vec3 row1; layout(location=5) in vec3 row2;
layout(location=6) in vec3 place; layout(location=7) in vec3 size; layout(location=8) in vec4 colour;
uniform bool round;
vec3 turned(vec3 v) { return vec3(dot(row0, v), dot(row1, v), dot(row2, v)); }
vec3 placed() { return place + turned(round ? position * size.x + vec3(0, 0, bulge * size.y) : position * size); }
`;
const BODY_VERTEX = HEAD + PLACED + `
uniform mat4 camera; out vec3 world; out vec3 facing; out vec4 paint;
void main() {
  world = placed(); paint = colour;
  facing = turned(round ? normal : normalize(normal / size));
  gl_Position = camera * vec4(world, 1);
}`;
const BODY_FRAGMENT = HEAD + `
in vec3 world; in vec3 facing; in vec4 paint; out vec4 pixel;
uniform vec3 eye, light, haze; uniform float floorHeight, reach;
void main() {
  vec3 n = normalize(facing), v = normalize(eye - world), h = normalize(light + v);
  float key = smoothstep(-0.35, 1.0, dot(n, light));
  float sky = 0.5 + 0.5 * n.z, near = smoothstep(0.0, 0.55, world.z - floorHeight);
  vec3 lit = paint.rgb * (key * vec3(1.02, 0.98, 0.92) * 0.86 + mix(vec3(0.30, 0.29, 0.28), vec3(0.42, 0.46, 0.52), sky) * mix(0.62, 1.0, near));
  lit += paint.a * (0.22 * pow(max(dot(n, h), 0.0), 42.0) + 0.10 * pow(1.0 - max(dot(n, v), 0.0), 3.0));
  float far = smoothstep(0.55, 1.0, length(eye - world) / reach);
  pixel = vec4(pow(mix(lit, haze, far), vec3(1.0 / 2.2)), 1);
}`;
const SHADE_VERTEX = HEAD + PLACED + `
uniform vec3 light; uniform vec3 area; uniform float floorHeight; out float height;
void main() {
  vec3 p = placed(); height = max(p.z - floorHeight, 0.0);
  gl_Position = vec4((p.xy - light.xy / light.z * height - area.xy) / area.z, 0, 1);
  if (place.z + size.x + size.y < floorHeight) gl_Position = vec4(9, 9, 0, 1); // below the floor: no shadow on it
}`;
const SHADE_FRAGMENT = HEAD + `
in float height; out vec4 pixel;
void main() { pixel = vec4(1.0 / (1.0 + 0.35 * height), 0, 0, 1); }`;
const WHOLE_VERTEX = HEAD + `
layout(location=0) in vec2 corner; out vec2 uv;
void main() { uv = corner * 0.5 + 0.5; gl_Position = vec4(corner, 0, 1); }`;
const BLUR_FRAGMENT = HEAD + `
in vec2 uv; out vec4 pixel; uniform sampler2D image; uniform vec2 along;
void main() {
  float sum = 0.227 * texture(image, uv).r;
  sum += 0.316 * (texture(image, uv + 1.385 * along).r + texture(image, uv - 1.385 * along).r);
  sum += 0.0703 * (texture(image, uv + 3.231 * along).r + texture(image, uv - 3.231 * along).r);
  pixel = vec4(sum, 0, 0, 1);
}`;
const GROUND_VERTEX = HEAD + `
layout(location=0) in vec2 corner; uniform mat4 camera; uniform vec3 centre; out vec2 place;
void main() { place = centre.xy + corner * centre.z; gl_Position = camera * vec4(place, FLOOR, 1); }`;
const GROUND_FRAGMENT = HEAD + `
in vec2 place; out vec4 pixel; uniform sampler2D shade; uniform vec3 area, haze, eye, tint, pool; uniform float reach, cell;
float lines(float step, float width) {
  vec2 at = place / step, wide = max(fwidth(at), vec2(1e-5));
  vec2 d = abs(fract(at - 0.5) - 0.5) / wide;
  return (1.0 - min(min(d.x, d.y) / width, 1.0)) * clamp(0.22 / max(wide.x, wide.y), 0.0, 1.0);
}
void main() {
  float shadow = texture(shade, (place - area.xy) / area.z * 0.5 + 0.5).r;
  vec2 edge = abs(place - area.xy) / area.z;
  shadow *= 1.0 - smoothstep(0.9, 1.0, max(edge.x, edge.y));
  vec3 c = tint * (1.0 - 0.07 * lines(cell, 1.1) - 0.085 * lines(10.0 * cell, 1.3));
  c *= mix(vec3(1), vec3(0.50, 0.53, 0.60), shadow);
  c *= mix(1.0, 0.8, smoothstep(0.15, 1.0, length(place - pool.xy) / pool.z));
  float far = smoothstep(0.1, 0.85, length(eye - vec3(place, FLOOR)) / reach);
  pixel = vec4(pow(mix(c, haze, far), vec3(1.0 / 2.2)), 1);
}`;
const PATH_VERTEX = HEAD + `
layout(location=0) in vec4 point; uniform mat4 camera; uniform float width, offset; out float side;
void main() {
  side = gl_VertexID % 2 == 0 ? -1.0 : 1.0;
  gl_Position = camera * vec4(point.xy + vec2(0, offset) + side * width * point.zw, FLOOR + 0.004, 1);
}`;
const PATH_FRAGMENT = HEAD + `
in float side; out vec4 pixel; uniform vec4 colour;
void main() { pixel = vec4(colour.rgb, colour.a * (1.0 - smoothstep(0.55, 1.0, abs(side)))); }`;
const MARK_VERTEX = HEAD + `
layout(location=0) in vec2 corner; uniform mat4 camera; uniform vec3 centre; out vec2 at;
void main() { at = corner; gl_Position = camera * vec4(centre.xy + corner * centre.z, FLOOR + 0.006, 1); }`;
const MARK_FRAGMENT = HEAD + `
in vec2 at; out vec4 pixel; uniform vec4 colour; uniform float inner;
void main() {
  float r = length(at), edge = fwidth(r);
  pixel = vec4(colour.rgb, colour.a * smoothstep(inner - edge, inner, r) * (1.0 - smoothstep(1.0 - edge, 1.0, r)));
}`;

export class Scene {
  /** `model`: MuJoCo's; `floor`: height of the ground. Throws where there is no WebGL 2. */
  constructor(canvas, model, floor) {
    const gl = canvas.getContext('webgl2', { antialias: !softwareRendering(), alpha: false, powerPreference: 'high-performance' });
    if (!gl) throw new Error('no WebGL 2');
    Object.assign(this, { canvas, gl, model, floor, scale: 1, shift: [0, 0], sunk: new Map() });
    const at = (text) => text.replaceAll('FLOOR', `(${floor.toFixed(4)})`);
    const program = (vertex, fragment) => compile(gl, at(vertex), at(fragment));
    this.body = program(BODY_VERTEX, BODY_FRAGMENT);
    this.shade = program(SHADE_VERTEX, SHADE_FRAGMENT);
    this.blur = program(WHOLE_VERTEX, BLUR_FRAGMENT);
    this.ground = program(GROUND_VERTEX, GROUND_FRAGMENT);
    this.path = program(PATH_VERTEX, PATH_FRAGMENT);
    this.mark = program(MARK_VERTEX, MARK_FRAGMENT);
    this.instances = gl.createBuffer();
    this.shapes = shapesOf(gl, model, this.instances);
    this.geoms = geomsOf(model);
    this.square = square(gl);
    this.texels = softwareRendering() ? 256 : 1024; // along a side of the shadows' texture
    this.shadows = [0, 1].map(() => target(gl, this.texels));
    this.haze = [0.60, 0.68, 0.75];
    this.tint = [0.76, 0.78, 0.79];
    this.camera = { target: [0, 0, floor], yaw: -1.9, pitch: 0.62, distance: 8 };
  }

  /** The direction from the eye through a point of the canvas, and the eye. */
  ray(x, y) {
    const { eye, right, up, forward, tangent, aspect } = this.view();
    const [u, v] = [(2 * x) / this.canvas.clientWidth - 1 - this.shift[0], 1 - (2 * y) / this.canvas.clientHeight - this.shift[1]];
    return { eye, along: normalise([0, 1, 2].map((i) => forward[i] + tangent * (u * aspect * right[i] + v * up[i]))) };
  }

  /** Where a ray meets the ground, or another height; null above the horizon. */
  onGround(x, y, height = this.floor) {
    const { eye, along } = this.ray(x, y);
    if (along[2] > -1e-3) return null;
    const t = (height - eye[2]) / along[2];
    return [eye[0] + t * along[0], eye[1] + t * along[1]];
  }

  /** Where a point of the world is on the canvas, in CSS pixels; null behind the eye. */
  project(point) {
    const m = this.view().matrix;
    const clip = [0, 1, 3].map((i) => m[i] * point[0] + m[4 + i] * point[1] + m[8 + i] * point[2] + m[12 + i]);
    if (clip[2] <= 0) return null;
    return [((clip[0] / clip[2] + 1) / 2) * this.canvas.clientWidth, ((1 - clip[1] / clip[2]) / 2) * this.canvas.clientHeight];
  }

  view() {
    const { target, yaw, pitch, distance } = this.camera;
    const back = [Math.cos(pitch) * Math.cos(yaw), Math.cos(pitch) * Math.sin(yaw), Math.sin(pitch)];
    const eye = target.map((each, i) => each + distance * back[i]);
    const forward = back.map((each) => -each), right = [-Math.sin(yaw), Math.cos(yaw), 0];
    const up = cross(right, forward);
    const aspect = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight);
    const tangent = Math.tan(0.36) * Math.max(1, 1 / Math.sqrt(aspect)); // a phone held upright sees as much
    const reach = 60 + 7 * distance;
    return { eye, forward, right, up, aspect, tangent, reach, matrix: perspective(eye, right, up, back, tangent, aspect, this.shift, distance / 60, 2 * reach) };
  }

  /** `robots`: {data, offset, colour, dim, dead: Set of geoms, path, paths' width}; `marks`: rings on the ground. */
  draw(robots, marks = []) {
    const gl = this.gl;
    this.resize();
    const view = this.view();
    const groups = this.place(robots);
    const [x, y] = this.camera.target, extent = Math.max(3, 1.15 * this.camera.distance);
    const texel = (2 * extent) / this.texels;
    const area = [Math.round(x / texel) * texel, Math.round(y / texel) * texel, extent]; // whole texels: nothing swims
    this.castShadows(groups, area);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(...this.haze.map((each) => each ** (1 / 2.2)), 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    this.drawGround(view, area);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthMask(false);
    gl.enable(gl.POLYGON_OFFSET_FILL);
    gl.polygonOffset(-2, -4);
    this.drawPaths(view, robots);
    this.drawMarks(view, marks);
    gl.disable(gl.POLYGON_OFFSET_FILL);
    gl.depthMask(true);
    gl.disable(gl.BLEND);
    this.drawBodies(view, groups);
  }

  resize() {
    const ratio = Math.min(2, globalThis.devicePixelRatio || 1) * this.scale;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight].map((each) => Math.max(1, Math.round(each * ratio)));
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
  }

  /** Put the geoms of all robots into the instances' buffer, shape by shape. */
  place(robots) {
    const wanted = [];
    robots.forEach((robot, index) => {
      const { geom_xpos: xpos, geom_xmat: xmat } = robot.data;
      for (const geom of this.geoms) if (!geom.still || index === 0) wanted.push({ geom, robot, xpos, xmat });
    });
    wanted.sort((a, b) => a.geom.shape - b.geom.shape);
    const values = new Float32Array(FLOATS * wanted.length);
    const groups = new Map();
    wanted.forEach(({ geom, robot, xpos, xmat }, i) => {
      const at = FLOATS * i, id = geom.id;
      for (let k = 0; k < 9; k++) values[at + k] = xmat[9 * id + k];
      values[at + 9] = xpos[3 * id];
      values[at + 10] = xpos[3 * id + 1] + (geom.still ? 0 : robot.offset);
      values[at + 11] = geom.still ? this.sink(id, xpos[3 * id + 2]) : xpos[3 * id + 2];
      values.set(geom.size, at + 12);
      values.set(paintOf(geom, robot), at + 15);
      const group = groups.get(geom.shape) ?? { first: i, count: 0 };
      group.count++;
      groups.set(geom.shape, group);
    });
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.instances);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.DYNAMIC_DRAW);
    return groups;
  }

  /** Blocks jump below the floor in the physics; here they are seen to go. */
  sink(id, z) {
    const shown = this.sunk.get(id) ?? z;
    const next = Math.abs(z - shown) < 0.01 ? z : shown + 0.12 * (z - shown);
    this.sunk.set(id, next);
    return next;
  }

  castShadows(groups, area) {
    const gl = this.gl;
    gl.disable(gl.DEPTH_TEST);
    gl.viewport(0, 0, this.texels, this.texels);
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.shadows[0].frame);
    gl.clearColor(0, 0, 0, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.enable(gl.BLEND);
    gl.blendEquation(gl.MAX);
    const u = use(gl, this.shade);
    gl.uniform3fv(u.light, LIGHT);
    gl.uniform3fv(u.area, area);
    gl.uniform1f(u.floorHeight, this.floor);
    this.drawShapes(groups, u);
    gl.blendEquation(gl.FUNC_ADD);
    gl.disable(gl.BLEND);
    const blur = use(gl, this.blur);
    gl.bindVertexArray(this.square);
    for (const [from, to, along] of [[0, 1, [1 / this.texels, 0]], [1, 0, [0, 1 / this.texels]]]) {
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.shadows[to].frame);
      gl.bindTexture(gl.TEXTURE_2D, this.shadows[from].texture);
      gl.uniform2fv(blur.along, along);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    }
  }

  drawGround({ matrix, eye, reach }, area) {
    const gl = this.gl, u = use(gl, this.ground);
    gl.bindTexture(gl.TEXTURE_2D, this.shadows[0].texture);
    gl.uniformMatrix4fv(u.camera, false, matrix);
    gl.uniform3fv(u.centre, [this.camera.target[0], this.camera.target[1], 1.6 * reach]);
    gl.uniform3fv(u.area, area);
    gl.uniform3fv(u.haze, this.haze);
    gl.uniform3fv(u.tint, this.tint);
    gl.uniform3fv(u.pool, [this.camera.target[0], this.camera.target[1], 2.2 * this.camera.distance]);
    gl.uniform3fv(u.eye, eye);
    gl.uniform1f(u.reach, reach);
    gl.uniform1f(u.cell, 1);
    gl.bindVertexArray(this.square);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }

  drawPaths({ matrix }, robots) {
    const gl = this.gl, u = use(gl, this.path);
    gl.uniformMatrix4fv(u.camera, false, matrix);
    gl.uniform1f(u.width, Math.max(0.02, 0.0042 * this.camera.distance));
    for (const { path, colour, offset, dim } of robots) {
      if (path.count < 2) continue;
      gl.uniform4fv(u.colour, [...colour.map((each) => each ** (1 / 2.2)), dim ? 0.25 : 0.8]);
      gl.uniform1f(u.offset, offset);
      path.bind();
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 2 * path.count);
    }
  }

  drawMarks({ matrix }, marks) {
    const gl = this.gl, u = use(gl, this.mark);
    gl.uniformMatrix4fv(u.camera, false, matrix);
    gl.bindVertexArray(this.square);
    for (const { place, radius, inner, colour } of marks) {
      gl.uniform3fv(u.centre, [...place, radius]);
      gl.uniform1f(u.inner, inner);
      gl.uniform4fv(u.colour, colour);
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    }
  }

  drawBodies({ matrix, eye, reach }, groups) {
    const gl = this.gl, u = use(gl, this.body);
    gl.uniformMatrix4fv(u.camera, false, matrix);
    gl.uniform3fv(u.eye, eye);
    gl.uniform3fv(u.light, LIGHT);
    gl.uniform3fv(u.haze, this.haze);
    gl.uniform1f(u.floorHeight, this.floor);
    gl.uniform1f(u.reach, reach);
    this.drawShapes(groups, u);
  }

  drawShapes(groups, u) {
    const gl = this.gl;
    for (const [id, { first, count }] of groups) {
      const shape = this.shapes.get(id);
      gl.bindVertexArray(shape.array);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.instances);
      [[3, 3, 0], [4, 3, 3], [5, 3, 6], [6, 3, 9], [7, 3, 12], [8, 4, 15]].forEach(([location, width, offset]) =>
        gl.vertexAttribPointer(location, width, gl.FLOAT, false, 4 * FLOATS, 4 * (FLOATS * first + offset)));
      gl.uniform1i(u.round, Number(shape.round));
      gl.drawElementsInstanced(gl.TRIANGLES, shape.count, gl.UNSIGNED_SHORT, 0, count);
    }
  }

  newPath() {
    return new Path(this.gl);
  }
}

/** The way of a robot on the ground: a ribbon that grows. */
class Path {
  constructor(gl) {
    this.gl = gl;
    this.count = 0;
    this.points = [];
    this.buffer = gl.createBuffer();
    this.array = gl.createVertexArray();
    gl.bindVertexArray(this.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, 4 * 8 * PATH_POINTS, gl.DYNAMIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 4, gl.FLOAT, false, 0, 0);
    gl.bindVertexArray(null);
  }

  clear() {
    this.count = 0;
    this.points = [];
  }

  add(x, y, least) {
    const last = this.points.at(-1);
    if (last && Math.hypot(x - last[0], y - last[1]) < least) return;
    if (this.count === PATH_POINTS) return;
    this.points.push([x, y]);
    const [fx, fy] = last ?? [x - 1, y];
    const length = Math.hypot(x - fx, y - fy);
    const normal = [-(y - fy) / length, (x - fx) / length];
    const gl = this.gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferSubData(gl.ARRAY_BUFFER, 32 * this.count, new Float32Array([x, y, ...normal, x, y, ...normal]));
    this.count++;
  }

  bind() {
    this.gl.bindVertexArray(this.array);
  }
}

/** '#rrggbb' as linear red, green, blue. */
export function linear(hex) {
  return [1, 3, 5].map((i) => (parseInt(hex.slice(i, i + 2), 16) / 255) ** 2.2);
}

let renderer;
/** The name of what draws, as far as the browser tells. */
export function rendererName() {
  if (renderer === undefined) {
    const gl = document.createElement('canvas').getContext('webgl2');
    const info = gl?.getExtension('WEBGL_debug_renderer_info');
    renderer = gl ? String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER)) : 'none';
    gl?.getExtension('WEBGL_lose_context')?.loseContext();
  }
  return renderer;
}

export const softwareRendering = () => /swiftshader|llvmpipe|software/i.test(rendererName());

/** The geom of a robot that a ray hits first, or null; thin ones are made easier to hit. */
export function pick(scene, robot, ray) {
  const { geom_xpos: xpos, geom_xmat: xmat } = robot.data;
  let best = null, nearest = Infinity;
  for (const geom of scene.geoms) {
    if (geom.still) continue;
    const centre = [xpos[3 * geom.id], xpos[3 * geom.id + 1] + robot.offset, xpos[3 * geom.id + 2]];
    const axis = [2, 5, 8].map((k) => xmat[9 * geom.id + k]);
    const half = geom.shape === CAPSULE || geom.shape === CYLINDER ? geom.size[1] : 0;
    const radius = geom.shape === CAPSULE || geom.shape === SPHERE ? geom.size[0] : Math.max(...geom.size);
    const { distance, along } = rayToSegment(ray, centre, axis, half);
    if (distance < radius + 0.012 * along && along - radius < nearest) [best, nearest] = [geom.id, along - radius];
  }
  return best;
}

function rayToSegment({ eye, along }, centre, axis, half) {
  const offset = centre.map((each, i) => each - eye[i]);
  const b = dot(along, axis), d = dot(along, offset), e = dot(axis, offset);
  const slack = 1 - b * b;
  const s = Math.min(half, Math.max(-half, slack < 1e-6 ? 0 : (b * d - e) / slack));
  const t = Math.max(0, d + s * b);
  return { distance: Math.hypot(...offset.map((each, i) => each + s * axis[i] - t * along[i])), along: t };
}

function paintOf(geom, robot) {
  if (geom.still) return [...geom.colour, 0.35];
  if (robot.dead.has(geom.id)) return [0.028, 0.03, 0.035, 0.5];
  const [light, grey] = [geom.light, robot.dim ? 0.6 : 0];
  return [...robot.colour.map((each) => (each + light * (1 - each)) * (1 - grey) + 0.55 * grey), 1];
}

/** What is drawn of a model: all geoms but planes and those of hidden groups. */
function geomsOf(model) {
  const depth = depthOf(model);
  const geoms = [];
  for (let id = 0; id < model.ngeom; id++) {
    const type = model.geom_type[id];
    if (type === PLANE || type === 1 || model.geom_group[id] > 2) continue;
    const body = model.geom_bodyid[id];
    const shape = type === MESH ? 100 + model.geom_dataid[id] : type;
    const size = type === SPHERE ? [model.geom_size[3 * id], 0, 0] : type === MESH ? [1, 1, 1]
      : type === CYLINDER ? [model.geom_size[3 * id], model.geom_size[3 * id], model.geom_size[3 * id + 1]]
      : Array.from(model.geom_size.slice(3 * id, 3 * id + 3));
    const colour = [0, 1, 2].map((k) => model.geom_rgba[4 * id + k] ** 2.2);
    geoms.push({ id, body, shape, size, colour, still: model.body_weldid[body] === 0, light: Math.min(0.36, 0.09 * depth[body]) });
  }
  return geoms;
}

/** How many bodies a body hangs below the robot's root: outer parts are painted lighter. */
function depthOf(model) {
  const depth = new Array(model.nbody).fill(0);
  for (let body = 2; body < model.nbody; body++) {
    const parent = model.body_parentid[body];
    depth[body] = parent === 0 ? 0 : depth[parent] + 1;
  }
  return depth;
}

function shapesOf(gl, model, instances) {
  const fine = softwareRendering() ? 1 : 2;
  const shapes = new Map([
    [SPHERE, shape(gl, ball(14 * fine, 20 * fine, false), instances, true)],
    [CAPSULE, shape(gl, ball(8 * fine, 12 * fine, true), instances, true)],
    [ELLIPSOID, shape(gl, ball(14 * fine, 20 * fine, false), instances, false)],
    [CYLINDER, shape(gl, tube(32), instances, false)],
    [BOX, shape(gl, cube(), instances, false)],
  ]);
  for (let mesh = 0; mesh < model.nmesh; mesh++) shapes.set(100 + mesh, shape(gl, meshOf(model, mesh), instances, false));
  return shapes;
}

function shape(gl, { vertices, indices }, instances, round) {
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(vertices), gl.STATIC_DRAW);
  [[0, 3, 0], [1, 3, 3], [2, 1, 6]].forEach(([location, width, offset]) => {
    gl.enableVertexAttribArray(location);
    gl.vertexAttribPointer(location, width, gl.FLOAT, false, 28, 4 * offset);
  });
  gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, new Uint16Array(indices), gl.STATIC_DRAW);
  gl.bindBuffer(gl.ARRAY_BUFFER, instances);
  for (let location = 3; location <= 8; location++) {
    gl.enableVertexAttribArray(location);
    gl.vertexAttribDivisor(location, 1);
  }
  gl.bindVertexArray(null);
  return { array, count: indices.length, round };
}

/** A unit ball; with `open` its halves can be drawn apart along z, which makes it a capsule. */
function ball(rings, sectors, open) {
  const angles = [];
  for (let i = 0; i <= rings; i++) {
    const angle = Math.PI * (i / rings - 0.5);
    if (open && 2 * i === rings) angles.push([angle, -1]);
    angles.push([angle, i / rings < 0.5 ? -1 : 1]);
  }
  const vertices = [], indices = [];
  for (const [angle, half] of angles) {
    for (let j = 0; j <= sectors; j++) {
      const turn = (2 * Math.PI * j) / sectors;
      const n = [Math.cos(angle) * Math.cos(turn), Math.cos(angle) * Math.sin(turn), Math.sin(angle)];
      vertices.push(...n, ...n, open ? half : 0);
    }
  }
  for (let i = 0; i + 1 < angles.length; i++) {
    for (let j = 0; j < sectors; j++) {
      const a = i * (sectors + 1) + j, b = a + sectors + 1;
      indices.push(a, a + 1, b, b, a + 1, b + 1);
    }
  }
  return { vertices, indices };
}

function cube() {
  const vertices = [], indices = [];
  for (let axis = 0; axis < 3; axis++) {
    for (const side of [-1, 1]) {
      const first = vertices.length / 7;
      for (const [u, v] of [[-1, -1], [1, -1], [-1, 1], [1, 1]]) {
        const p = [0, 0, 0], n = [0, 0, 0];
        p[axis] = n[axis] = side;
        p[(axis + 1) % 3] = u;
        p[(axis + 2) % 3] = v;
        vertices.push(...p, ...n, 0);
      }
      indices.push(first, first + 1, first + 2, first + 2, first + 1, first + 3);
    }
  }
  return { vertices, indices };
}

function tube(sectors) {
  const vertices = [], indices = [];
  for (let j = 0; j <= sectors; j++) {
    const [x, y] = [Math.cos((2 * Math.PI * j) / sectors), Math.sin((2 * Math.PI * j) / sectors)];
    for (const z of [-1, 1]) vertices.push(x, y, z, x, y, 0, 0, x, y, z, 0, 0, z, 0);
  }
  for (let j = 0; j < sectors; j++) {
    const a = 4 * j;
    indices.push(a, a + 4, a + 2, a + 2, a + 4, a + 6);
    if (j > 0 && j < sectors - 1) indices.push(1, a + 1, a + 5, 3, a + 7, a + 3);
  }
  indices.push(1, 4 * (sectors - 1) + 1, 4 * sectors - 3, 3, 4 * sectors - 1, 4 * (sectors - 1) + 3);
  return { vertices, indices };
}

/** A mesh of the model, with its own flat faces. */
function meshOf(model, mesh) {
  const [first, faces] = [model.mesh_faceadr[mesh], model.mesh_facenum[mesh]];
  const start = model.mesh_vertadr[mesh], vertices = [], indices = [];
  for (let face = 0; face < Math.min(faces, 21000); face++) {
    const corners = [0, 1, 2].map((k) => {
      const vertex = 3 * (start + model.mesh_face[3 * (first + face) + k]);
      return Array.from(model.mesh_vert.slice(vertex, vertex + 3));
    });
    const n = normalise(cross(sub(corners[1], corners[0]), sub(corners[2], corners[0])));
    for (const corner of corners) {
      indices.push(vertices.length / 7);
      vertices.push(...corner, ...n, 0);
    }
  }
  return { vertices, indices };
}

function square(gl) {
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]), gl.STATIC_DRAW);
  gl.enableVertexAttribArray(0);
  gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
  gl.bindVertexArray(null);
  return array;
}

function target(gl, size) {
  const texture = gl.createTexture(), frame = gl.createFramebuffer();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, size, size);
  for (const axis of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, axis, gl.CLAMP_TO_EDGE);
  for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, filter, gl.LINEAR);
  gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  return { texture, frame };
}

function compile(gl, vertex, fragment) {
  const program = gl.createProgram();
  for (const [type, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const part = gl.createShader(type);
    gl.shaderSource(part, text);
    gl.compileShader(part);
    gl.attachShader(program, part);
    program.log = () => gl.getShaderInfoLog(part);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(`shader: ${gl.getProgramInfoLog(program)} ${program.log()}`);
  const uniforms = {};
  for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
    const { name } = gl.getActiveUniform(program, i);
    uniforms[name] = gl.getUniformLocation(program, name);
  }
  return { program, uniforms };
}

function use(gl, { program, uniforms }) {
  gl.useProgram(program);
  return uniforms;
}

function perspective(eye, right, up, back, tangent, aspect, shift, near, far) {
  const [sx, sy] = [1 / (tangent * aspect), 1 / tangent];
  const [a, b] = [-(far + near) / (far - near), (-2 * far * near) / (far - near)];
  // What lies ahead appears at `shift`, so that panels at the edges hide nothing.
  const rows = [right.map((each, i) => sx * each - shift[0] * back[i]), up.map((each, i) => sy * each - shift[1] * back[i]), back];
  const origin = rows.map((row) => -dot(row, eye));
  const matrix = new Float32Array(16);
  for (let i = 0; i < 3; i++) {
    matrix.set([rows[0][i], rows[1][i], a * rows[2][i], -rows[2][i]], 4 * i);
  }
  matrix.set([origin[0], origin[1], a * origin[2] + b, -origin[2]], 12);
  return matrix;
}

function dot(a, b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

function sub(a, b) {
  return a.map((each, i) => each - b[i]);
}

function cross(a, b) {
  return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
}

function normalise(v) {
  const length = Math.hypot(...v) || 1;
  return v.map((each) => each / length);
}
