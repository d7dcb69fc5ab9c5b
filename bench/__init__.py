"""Speed and memory, beside verl's own functions where it is installed: `make bench`.

`python -m bench` runs every section, writes one JSON file a section to `bench/out/` and makes
`docs/performance.md` of them; `python -m bench gigpo growth` runs two sections.
"""
