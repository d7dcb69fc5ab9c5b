"""Real rollouts that come with the package: a language model in text games (examples/textworld)."""
