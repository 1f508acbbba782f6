"""Published results, regenerated; engines that repeat published simulators with their known bugs."""
