"""The controller of a run, which decides what is sampled, trained, evaluated and saved."""
