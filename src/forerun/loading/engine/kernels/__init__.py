"""The domain's compiled loops: delivery by workers, threads over a store, caches; arrays in, named arrays out."""
