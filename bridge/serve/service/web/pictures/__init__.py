"""Pictures of figures: shapes as inline SVG, whose words are for those who do not see them.

Enters: figures of runs and of commits. Leaves: paths for the templates, which escape what is text. The page's policy
allows no style in an SVG: page.css has its colours, light and dark.

```
bars.py   the latest runs of a pipeline, a bar each
steps.py  rows and bytes after each of the latest commits
```
"""
