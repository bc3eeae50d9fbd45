"""The command line and the configuration file of the published program, translated."""
