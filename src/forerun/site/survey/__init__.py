"""One answer from the files of a site: what waits and why, how well that is known, what would help, when jobs start."""
