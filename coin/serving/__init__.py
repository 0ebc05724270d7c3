"""Answers when servers are slow or dead: coded serving. Only `engine`, `replicas` and `ingress` know Ray."""
