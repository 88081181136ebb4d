// Makes a copy of the engine that contains all mistakes, each of them off: every mutated place
// becomes a choice, which the environment variable MANGROVE_MUTANT makes when the program runs.
// So the engine is compiled once, however long the list is.
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** What the engine and its tests consist of, from the root of the repository. */
const COPIED = [
  'Cargo.lock',
  'Cargo.toml',
  'rust-toolchain.toml',
  'docs/FORMAT.md',
  'docs/RUST.md',
  'engine/Cargo.toml',
  'engine/examples',
  'engine/proptest-regressions',
  'engine/src',
  'engine/testing',
  'engine/tests',
  'fuzz/corpus-seeds',
];

const SWITCH = `
/// Whether this mistake is to be made.
pub(crate) fn mutant(number: u32) -> bool {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("MANGROVE_MUTANT").map_or(0, |text| text.parse().expect("a number")));
    *chosen == number
}
`;

function escape(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

/** Matches the text however it is broken into lines. */
function pattern(text) {
  return text.split(/\s+/).map(escape).join('\\s+');
}

/** Where the mutated part of a snippet stands, `[start, end]`; the snippet must be there exactly once. */
function locate(source, { name, file, original }) {
  const [before, part, after] = original.includes('«') ? original.split(/[«»]/) : ['', original, ''];
  const expression = new RegExp(`(${pattern(before)})(${pattern(part)})${pattern(after)}`, 'g');
  const found = [...source.matchAll(expression)];
  if (found.length !== 1) {
    throw new Error(`"${name}": ${found.length === 0 ? 'nowhere' : `${found.length} times`} in ${file}: ${original}`);
  }
  const start = found[0].index + found[0][1].length;
  return [start, start + found[0][2].length];
}

function isStatement(text) {
  return text === '' || /[;}]$/.test(text);
}

/** Applies all mutants of one file. Places may be the same, or lie in each other. */
function rewrite(source, mutants) {
  const places = mutants.map((mutant) => ({ mutant, place: locate(source, mutant) }));
  // Outer places first.
  places.sort((a, b) => a.place[0] - b.place[0] || b.place[1] - a.place[1] || a.mutant.number - b.mutant.number);
  const render = (from, to, list) => {
    let text = '';
    let at = from;
    for (let index = 0; index < list.length; ) {
      const [start, end] = list[index].place;
      let next = index + 1;
      while (next < list.length && list[next].place[0] < end) next += 1;
      const within = list.slice(index + 1, next);
      if (within.some(({ place }) => place[1] > end))
        throw new Error(`"${list[index].mutant.name}" overlaps another mutant`);
      const { number, replacement } = list[index].mutant;
      const original = render(start, end, within);
      const choice = `if crate::mutant(${number}) { ${replacement} } else { ${original} }`;
      text += source.slice(at, start) + (isStatement(source.slice(start, end)) ? choice : `(${choice})`);
      at = end;
      index = next;
    }
    return text + source.slice(at, to);
  };
  return render(0, source.length, places);
}

/** Writes a file only if its content differs: cargo looks at the time. */
function put(path, text) {
  let before;
  try {
    before = readFileSync(path);
  } catch {
    mkdirSync(dirname(path), { recursive: true });
  }
  const bytes = Buffer.from(text);
  if (before === undefined || !before.equals(bytes)) writeFileSync(path, bytes);
}

function list(path, under = '') {
  if (!statSync(path).isDirectory()) return [under];
  return readdirSync(path).flatMap((name) => list(join(path, name), join(under, name)));
}

/** Checks the list against the sources, without making a copy. */
export function check(root, mutants) {
  const problems = [];
  for (const [file, own] of byFile(mutants)) {
    const source = readFileSync(join(root, 'engine', 'src', file), 'utf8');
    for (const mutant of own) {
      try {
        locate(source, mutant);
      } catch (error) {
        problems.push(error.message);
      }
    }
    if (problems.length === 0) rewrite(source, own);
  }
  if (problems.length > 0) throw new Error(`not in the sources:\n${problems.join('\n')}`);
}

function byFile(mutants) {
  const files = new Map();
  for (const mutant of mutants) files.set(mutant.file, [...(files.get(mutant.file) ?? []), mutant]);
  return files;
}

/** Makes the copy of the workspace at `root` in `directory`. */
export function copy(root, directory, mutants) {
  const files = byFile(mutants);
  const wanted = new Set();
  for (const part of COPIED) {
    for (const file of list(join(root, part))) {
      const path = join(part, file);
      wanted.add(path);
      const bytes = readFileSync(join(root, path));
      const own = path.startsWith('engine/src/') ? files.get(path.slice('engine/src/'.length)) : undefined;
      let text = own === undefined ? bytes : rewrite(bytes.toString(), own);
      if (path === 'engine/src/lib.rs') text += SWITCH;
      if (path === 'Cargo.toml') text = bytes.toString().replace(/^members = .*$/m, 'members = ["engine"]');
      put(join(directory, path), text);
    }
  }
  for (const path of list(directory)) {
    if (!wanted.has(path) && path !== 'Cargo.lock') rmSync(join(directory, path));
  }
}
