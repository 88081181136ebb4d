// Collects the licences of the crates that are compiled into the modules: MIT asks that its text goes along.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { output, toolEnv } from '../../.ci/tools.mjs';

const ROOT_CRATES = ['mangrove-bindings', 'mangrove-maintenance'];
const PERMISSIVE = /^(MIT|Apache-2\.0|BSD-[23]-Clause|ISC|Zlib|0BSD|Unlicense|Unicode-3\.0|BlueOak-1\.0\.0)$/;

function readMetadata() {
  const json = output(
    'cargo',
    [
      'metadata',
      '--format-version',
      '1',
      '--filter-platform',
      'wasm32-unknown-unknown',
      '--features',
      'mangrove-bindings/encryption',
      '--locked',
    ],
    toolEnv(),
  );
  if (json === undefined) throw new Error('cargo metadata failed: is Cargo.lock up to date?');
  return JSON.parse(json);
}

function isProcMacro(crate) {
  return crate.targets.some((target) => target.kind.includes('proc-macro'));
}

/** What is linked: ordinary dependencies, without macros, which run in the compiler only. */
function linkedCrates({ packages, resolve }) {
  const crates = new Map(packages.map((crate) => [crate.id, crate]));
  const nodes = new Map(resolve.nodes.map((node) => [node.id, node]));
  const seen = new Set();
  const pending = ROOT_CRATES.map((name) => packages.find((crate) => crate.name === name).id);
  while (pending.length > 0) {
    const id = pending.pop();
    if (seen.has(id) || isProcMacro(crates.get(id))) continue;
    seen.add(id);
    for (const dep of nodes.get(id).deps) if (dep.dep_kinds.some(({ kind }) => kind === null)) pending.push(dep.pkg);
  }
  return [...seen]
    .map((id) => crates.get(id))
    .filter((crate) => crate.source !== null)
    .sort((a, b) => a.name.localeCompare(b.name));
}

function licenseText(crate) {
  const directory = dirname(crate.manifest_path);
  const files = readdirSync(directory).filter((file) => /^licen[cs]e/i.test(file));
  const chosen = files.find((file) => /mit/i.test(file)) ?? files[0];
  if (chosen === undefined) throw new Error(`${crate.name} ${crate.version} has no licence file`);
  return readFileSync(join(directory, chosen), 'utf8').trim();
}

/** Each part of an SPDX expression that holds must offer a permissive choice. */
function isPermissive(expression) {
  const parts = expression.replace(/[()]/g, '').split(' AND ');
  return parts.every((part) => part.split(/ OR |\//).some((license) => PERMISSIVE.test(license.trim())));
}

function notice(crate) {
  if (!isPermissive(crate.license ?? '')) {
    throw new Error(`${crate.name} ${crate.version} is under "${crate.license}", which is not permissive`);
  }
  return `${crate.name} ${crate.version} (${crate.license})\n\n${licenseText(crate)}\n`;
}

export function writeNotices(path) {
  const crates = linkedCrates(readMetadata());
  const head =
    'The WebAssembly modules contain the following crates, and parts of the Rust standard library (MIT OR Apache-2.0).\n';
  writeFileSync(path, [head, ...crates.map(notice)].join(`\n${'-'.repeat(80)}\n\n`));
}
