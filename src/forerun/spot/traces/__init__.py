"""`forerun trace` for the spot domain: generate, fit and describe histories of a preemptible fleet."""
