"""Lets the programs of this folder import tests/lib and the package of python/: imported
before those modules."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "..", "python")]
