// Drains n jobs of graphile-worker in named queues, perGroup jobs in each, and
// prints how long that took and how many jobs began after a later one of their
// queue. Arguments: URL, n, perGroup, connections.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const [url, count, block, connections] = process.argv.slice(2);
const n = Number(count);
const perGroup = Number(block);
const pgPool = new pg.Pool({ connectionString: url, max: Number(connections) });
const logger = new Logger(() => () => {}); // says nothing

await pgPool.query("DROP SCHEMA IF EXISTS graphile_worker CASCADE");
const utils = await makeWorkerUtils({ pgPool, logger });
await utils.migrate();
for (let from = 0; from < n; from += 1000) {
  const specs = [];
  for (let i = from; i < Math.min(n, from + 1000); i++) {
    const group = Math.floor(i / perGroup);
    specs.push({ identifier: "bench", payload: { group, seq: i }, queueName: `group-${group}` });
  }
  await utils.addJobs(specs);
}
await pgPool.query("ANALYZE");

let handled = 0;
let late = 0;
const latest = new Map();
let finished;
const done = new Promise((resolve) => (finished = resolve));
const began = process.hrtime.bigint();
const runner = await run({
  pgPool,
  concurrency: 32,
  noHandleSignals: true,
  pollInterval: 20,
  logger,
  preset: { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
  taskList: {
    bench: async ({ group, seq }) => {
      if ((latest.get(group) ?? -1) > seq) late++;
      else latest.set(group, seq);
      if (++handled === n) finished();
    },
  },
});
await done;
const seconds = Number(process.hrtime.bigint() - began) / 1e9;
await runner.stop();
await utils.release();
await pgPool.end();
console.log(JSON.stringify({ seconds, late }));
