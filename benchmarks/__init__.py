"""Benchmarks: cases, their runner and the committed result rows."""
