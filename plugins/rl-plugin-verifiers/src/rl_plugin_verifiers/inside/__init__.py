"""What runs in the interpreter that has verifiers, where the modules of this folder are imported by their names."""
