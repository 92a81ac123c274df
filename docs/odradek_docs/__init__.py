"""The documentation as a site, its generated pages, and the checks that keep docs true.

mkdocs.yml, hooks.py    the site (`make docs`)
repository_links.py     links from pages to files outside docs/
crd_reference.py        docs/reference/<kind>.md from odradek_api (`make gen`)
settings_reference.py   docs/reference/*-settings.md from odradek_broker.model (`make gen`)
package_diagram.py      the diagram in DESIGN.md from import-linter's contracts (`make gen`)
blocks.py, run_blocks.py   code blocks that are marked as runnable (`make docs-check`)
named_paths.py          paths that docs name, and that have to exist
"""
