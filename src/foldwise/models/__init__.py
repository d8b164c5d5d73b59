"""Families of machines as optimisation problems: linear and kernel models."""
