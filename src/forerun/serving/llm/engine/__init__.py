"""Stages that run a language model: requests in, tokens out, by continuous batching.

A stage with an `llm` section has replicas that each hold a queue of requests and a cache of *blocks* of a fixed number of
tokens. A replica works in *iterations*. Each gives the requests that run, in the order of their admission, what they
still have to process: the rest of their prompt (a *prefill*, in chunks if the token budget is short) or their latest
token (a *decode*); then it admits waiting requests while seats, budget and blocks last. A request whose next chunk finds
too few free blocks has the last request that runs preempted: its blocks are freed, it goes back to the front of the
queue, and all of it is processed anew. At the end of an iteration every request with all its tokens in the cache emits
one; its first ends the time to first token (TTFT), the one after that the first time between tokens (TBT).
That is the scheduler `chunked-prefill`; others follow other rules (`policy.scheduling`).

Modelled: admission, schedulers, the token budget, the limit of the cache in whole blocks, prefixes that prompts share,
preemption by recomputing or swapping, routing between replicas, which may come and go, replicas that prefill apart from
those that decode and the transfers between them, speculative decoding. *Not* modelled: how long an iteration takes is
imported, as coefficients or measured medians, and not derived from a machine; the network but for these transfers, the
tokeniser, the server's own scheduling overhead beyond what the imported times contain. State how well a profile fits
before you trust a tail: where published simulators were compared with real servers, means were off by a few per cent and
99th percentiles by tens.
"""
