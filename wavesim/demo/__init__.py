"""The main job, full-waveform inversion from the command line; built on the public functions."""
