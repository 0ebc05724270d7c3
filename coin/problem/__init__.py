"""The problem: what a code is given, and how what it makes is judged."""
