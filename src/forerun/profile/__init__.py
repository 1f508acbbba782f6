"""What one room found, as a file that another room reads.

The rooms do not know each other; they know these profiles. `Supply` (from the loading room) says how many samples a
second reach so many readers: the cluster and the spot room slow their steps down to it. `Power` (from the energy room)
says what a GPU draws at a batch size and a power limit, and how much slower the limit makes it: the cluster room turns
its GPU-seconds into joules, money and CO2e with it.
"""
