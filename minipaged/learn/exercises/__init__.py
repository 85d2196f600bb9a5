"""The exercises, a folder each: a starter with a hole, a solution, and a judge."""
