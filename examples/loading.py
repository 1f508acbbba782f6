"""Which block size and how many threads hide loading behind a 100 ms step, and what would that be worth?

Twenty thousand small files behind 10 ms of latency, on the loading room's embedded data. Run: python examples/loading.py
"""

import forerun

scenario = forerun.load(forerun.demo("loading").scenario)
now = forerun.simulate(scenario)
print(f"now: {now.summary['samples_per_s']:.0f} samples/s; {now.why}")

cells = now.frame("cells").sort("total_s")
print(cells.select("block_samples", "threads", "samples_per_s", "hidden", "chosen").head(5))

chosen = cells.filter(cells["chosen"]).row(0, named=True)
setting = [f"layout.block_samples={chosen['block_samples']}", f"loader.threads={chosen['threads']}"]
then = forerun.simulate(forerun.load(forerun.demo("loading").scenario, setting))
gain = then.summary["samples_per_s"] / now.summary["samples_per_s"]
print(
    f"blocks of {chosen['block_samples']}, {chosen['threads']} threads: {gain:.1f} times the samples a second"
)
print(f"merging pays back after {then.summary['payback_epochs']:.2f} epochs")
assert then.summary["hidden"] and gain > 2
