"""The runner behind bench/compare, bench/ab and bench/instr. Python's standard library alone.

Floors, bottom up; a module imports only from those above it in this list:
  stats, units      numbers
  launch            one run of one command
  allocators        what can be preloaded, and the proof that it was
  rows              what is run
  measure           rounds over allocators: samples; which runs are repeated
  analysis          samples to lines with verdicts, geometric means, the noise check
  machine           the header
  progress, table, charts, report, markdown, results   what people and files get
  cli, ab, instr    the commands
"""
