"""What a run means: `summarize.summarize(outcome)` makes the result.

waits: stretches of constant allocation and waiting seconds by cause. ledgers: where GPU time and job time went. tables,
gpus: tables and timeline. refusals, why: causes in words. bill: data wait, joules, money and CO2e.
"""
