"""Language-model servers under a replayed load, and the simulation of the same load beside what they did."""
