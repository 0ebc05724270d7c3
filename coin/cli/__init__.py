"""The commands: the only files that know Hydra."""
