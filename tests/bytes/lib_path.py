"""Lets the programs of this folder import tests/lib: imported before those modules."""
import os
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
