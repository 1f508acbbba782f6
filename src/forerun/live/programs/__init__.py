"""Training programs to try a scheduler with; `python -m forerun.live.programs.NAME`, and jobs of `forerun live`."""
