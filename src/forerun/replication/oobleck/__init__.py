"""Published results about the simulators of the Oobleck artefact."""
