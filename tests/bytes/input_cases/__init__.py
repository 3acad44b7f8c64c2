"""Cases of inputs.py."""
