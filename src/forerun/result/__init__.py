"""What a run gives back: tables with units, ledgers that sum, timelines, figures as data, and where they are kept."""
