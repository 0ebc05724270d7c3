"""Training: all that needs Lightning, data, models, experts, their outputs and Fishers, and codes that train."""
