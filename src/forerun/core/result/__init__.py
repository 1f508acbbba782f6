"""Results of a run: tables with units, ledgers that sum, timelines, figures as data, and run directories."""
