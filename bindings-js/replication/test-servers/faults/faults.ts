// What happens to servers. Each fault ends by itself, and a quorum comes back.
import type { Cluster, Node } from '../support/nats.ts';
import type { Random } from './random.ts';

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

type Fault = (cluster: Cluster, random: Random) => Promise<void>;

async function restart(nodes: readonly Node[]): Promise<void> {
  await Promise.all(nodes.map((node) => node.start()));
}

const kill: Fault = async ({ nodes }, random) => {
  const node = random.of(nodes);
  await node.kill();
  await pause(random.between(0, 4000));
  await node.start();
};

const killTwo: Fault = async ({ nodes }, random) => {
  const spared = random.below(nodes.length);
  const killed = nodes.filter((_, at) => at !== spared);
  await Promise.all(killed.map((node) => node.kill()));
  await pause(random.between(0, 2000));
  await restart(killed);
};

const killAll: Fault = async ({ nodes }) => {
  await Promise.all(nodes.map((node) => node.kill()));
  await restart(nodes);
};

/** Servers that come and go faster than they catch up. */
const flap: Fault = async ({ nodes }, random) => {
  for (let time = 0; time < 3; time++) {
    const node = random.of(nodes);
    await node.kill();
    await node.start();
    await pause(random.between(100, 1000));
  }
};

const stop: Fault = async ({ nodes }, random) => {
  const node = random.of(nodes);
  node.signal('SIGSTOP');
  await pause(random.between(1000, 15_000));
  node.signal('SIGCONT');
};

const partition =
  (state: 'cut' | 'silent'): Fault =>
  async (cluster, random) => {
    const node = random.below(cluster.nodes.length);
    cluster.isolate(node, state);
    await pause(random.between(1000, 12_000));
    cluster.isolate(node, 'open');
  };

/** One of the three pairs of servers cannot talk. */
const halfPartition: Fault = async (cluster, random) => {
  const first = random.below(cluster.nodes.length);
  const second = (first + 1) % cluster.nodes.length;
  const links = [cluster.links[first]?.[second], cluster.links[second]?.[first]];
  for (const link of links) link?.set('silent');
  await pause(random.between(1000, 10_000));
  for (const link of links) link?.set('open');
};

/** A server is cut off, killed, and comes back as another one goes. */
const partitionAndKill: Fault = async (cluster, random) => {
  const first = random.below(cluster.nodes.length);
  const second = (first + 1) % cluster.nodes.length;
  cluster.isolate(first, 'silent');
  await pause(random.between(500, 5000));
  await cluster.nodes[second]?.kill();
  cluster.isolate(first, 'open');
  await pause(random.between(0, 1000));
  await cluster.nodes[first]?.kill();
  await cluster.nodes[second]?.start();
  await cluster.nodes[first]?.start();
};

/**
 * A server comes back with the disk of some seconds ago. The others have all that it has promised to
 * keep: Raft permits no more than that one server forgets.
 */
const staleDisk: Fault = async ({ nodes }, random) => {
  const node = random.of(nodes);
  await node.kill();
  node.saveDisk();
  await node.start();
  await pause(random.between(3000, 6000));
  await node.kill();
  await pause(2000);
  node.restoreDisk();
  await node.start();
  await pause(3000);
};

/**
 * All servers come back with their disks of some seconds ago: what was acknowledged since is lost.
 * Objects stay, so a snapshot may have more than the log.
 */
export const loseHistory: Fault = async ({ nodes }, random) => {
  await Promise.all(nodes.map((node) => node.kill()));
  for (const node of nodes) node.saveDisk();
  await restart(nodes);
  await pause(random.between(4000, 12_000));
  await Promise.all(nodes.map((node) => node.kill()));
  for (const node of nodes) node.restoreDisk();
  await restart(nodes);
  await pause(8000);
};

export const FAULTS: Readonly<Record<string, Fault>> = {
  kill,
  killTwo,
  killAll,
  flap,
  stop,
  cut: partition('cut'),
  silence: partition('silent'),
  halfPartition,
  partitionAndKill,
  staleDisk,
};
