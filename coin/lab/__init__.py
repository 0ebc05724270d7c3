"""The laboratory: what is kept, what is logged and said, and the story of an encode run."""
