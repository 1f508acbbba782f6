// First come, first served, in a program of its own; README.md has the protocol.
//
// forerun simulate scenario.yaml --decider -- node examples/deciders/decider.mjs

import { createInterface } from "node:readline";

const say = (data) => process.stdout.write(JSON.stringify(data) + "\n");

// GPUs for the jobs that start now: in order of submission, until one does not fit.
function decided(view) {
  let free = view.free;
  const { id, gpus, has } = view.jobs;
  const start = {};
  for (let at = 0; at < id.length; at += 1) {
    if (has[at]) continue;
    if (gpus[at] > free) break;
    start[id[at]] = gpus[at];
    free -= gpus[at];
  }
  return { view: view.view, gpus: start };
}

let greeted = false;
for await (const line of createInterface({ input: process.stdin })) {
  const data = JSON.parse(line);
  say(greeted ? decided(data) : { protocol: data.protocol });
  greeted = true;
}
