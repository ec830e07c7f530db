"""The page of the service and its HTTP API: what the bucket says, and the actions of the command line.

Enters: requests, and `bridge.serve.service.runs.Runs`. Leaves: HTML that needs no JavaScript, JSON, server-sent events.

```
app.py       the routes; read this first
auth/        who may ask: token, session, Host, CSRF, headers        posted.py  what a form or a program sent
pipelines.py the pipelines of the file and of its buckets            pipeline_status.py  how each stands
watch.py     looks again and again while somebody watches            hub.py     events for those who listen
pages.py, run_pages.py, table_pages.py  what is looked at            render.py  HTML; pictures/
actions.py, changes.py   what changes something, after a page that says what it will do
api.py, views_api.py     the same for programs
```
Nothing here has a state of its own: a crash loses nothing, and a restart shows the same.
"""
