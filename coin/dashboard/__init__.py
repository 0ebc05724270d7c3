"""Dashboards: a saved W&B workspace and a W&B report for a project of COIN runs."""
