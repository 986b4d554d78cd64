"""The site: pages from docs/, from the package itself and from tutorials that were run.

`python -m docs.make` writes Markdown into build/pages and the site into build/site.
"""
