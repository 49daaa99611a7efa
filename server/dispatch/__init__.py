"""The way from a request to its handler.

apis.py      the table of all requests: key, name, versions, how each is served
dispatch.py  routes: which function answers which request
context.py   context of a request
access.py    checks of rights
"""
