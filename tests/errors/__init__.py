"""The error inputs of golden_errors.py, one module per subject."""
