"""The built-in domains: one package each, with the same parts (see `forerun.domain`)."""
