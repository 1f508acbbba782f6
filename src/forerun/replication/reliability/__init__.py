"""Published figures about failures of training clusters."""
